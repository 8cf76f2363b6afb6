package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// settings are the cases of the settings of the services and of the commands.
func settings(b *builds, dir string) group {
	g := group{name: "settings"}
	for _, of := range []string{"up", "controller", "registry", "status"} {
		g.steps = append(g.steps,
			step{name: "file of " + of, loose: true, play: func(ctx context.Context) (string, error) {
				return compareSettings(ctx, b, filepath.Join(dir, of+".conf"), of, true)
			}},
			step{name: "environment of " + of, loose: true, play: func(ctx context.Context) (string, error) {
				return compareSettings(ctx, b, filepath.Join(dir, of+".conf"), of, false)
			}})
	}
	for _, of := range []string{"up", "controller", "registry"} {
		g.steps = append(g.steps, step{name: "defaults of " +
			of, loose: true, play: func(ctx context.Context) (string, error) { return compareDefaults(ctx, b, of) }})
	}
	g.steps = append(g.steps,
		step{name: "other names", loose: true, play: func(ctx context.Context) (string, error) {
			return otherNames(ctx, b)
		}},
		step{name: "client.yaml", loose: true, play: func(ctx context.Context) (string, error) {
			return compareContexts(ctx, b, filepath.Join(dir, "home"))
		}})
	return g
}

// samples are values of settings that have no default, or whose default another one excludes.
var samples = map[string]string{ //nolint:gosec // they are examples
	"SVC_REGISTRY": "http://registry.example:8089", "SVC_LOCAL_REGISTRY": "http://127.0.0.1:8089",
	"SVC_PUSH_REGISTRY":        "http://push.example:8089",
	"SVC_ETCD_ENDPOINTS":       "http://127.0.0.1:2379,http://127.0.0.1:3379",
	"SVC_MAC_ADDR_RANGE":       "52:54:00:00:00:00-52:54:00:00:0F:FF",
	"SVC_MANAGE_MAC_ADDRESSES": "true", "SVC_EVENT_LOG_URL": "http://user:password@events.example/",
	"SVC_BACKUP_DIR":   "/backups",
	"SVC_LICENSE_FILE": "/etc/buildyard/controller.lic", "SVC_LICENSE_AUTHORITY": "/etc/buildyard/authority.pub",
	"SVC_PACKAGES_DIR": "/packages",
	"SVC_LOG_DIR":      "/var/log/buildyard", "SVC_ROOT_TOKEN": "token-of-the-root-user", "SVC_CA_CERT": "/etc/ca.pem",
	"SVC_CRL":               "/etc/a.crl,/etc/b.crl",
	"SVC_OIDC_PROVIDER_URL": "https://idp.example", "SVC_OIDC_CLIENT_ID": "cloud",
	"SVC_OIDC_CLIENT_SECRET": "secret-of-the-client",
	"SVC_OIDC_DISPLAY_NAME":  "Example", "SVC_OIDC_USERNAME_CLAIM": "name", "SVC_OIDC_SCOPES": "openid,groups",
	"SVC_SERVER_CERT": "/etc/tls.pem", "SVC_SERVER_KEY": "/etc/tls.key", "SVC_API_KEY_ID": "controller",
	"SVC_API_KEY_STRING": "key-of-the-controller",
	"SVC_REGISTRY_CA":    "/etc/registry.pem", "SVC_QUEUE_ADDR": "127.0.0.1:8091",
	"SVC_QUEUE_SERVER_CERT": "/etc/q.pem",
	"SVC_QUEUE_SERVER_KEY":  "/etc/q.key",
	"SVC_QUEUE_CA_CERT":     "/etc/qca.pem", "SVC_QUEUE_CRL": "/etc/q.crl", "SVC_DATA_DIR": "/srv/controller",
	"SVC_LISTEN_ADDR": "127.0.0.1:8090",
	"SVC_CONTEXT":     "lab", "SVC_CLIENT_ROOT_TOKEN": "token-of-the-root-user", "SVC_CLIENT_API_KEY_ID": "ci",
	"SVC_CLIENT_API_KEY_STRING": "key-of-ci",
	"SVC_CLIENT_BEARER":         "token", "SVC_CLIENT_CA": "/etc/ca.pem", "SVC_CLIENT_CERT": "/etc/c.pem",
	"SVC_CLIENT_KEY": "/etc/c.key", "SVC_BASE_PATH": "/srv/registry",
}

// compareSettings gives every setting of the old program a value, in a file or in the environment,
// and requires that the new one prints the same values.
func compareSettings(ctx context.Context, b *builds, file, of string, inFile bool) (string, error) {
	defaults, err := printConfig(ctx, b.old, nil, of)
	if err != nil {
		return "", err
	}
	var lines []string
	for _, key := range slices.Sorted(maps.Keys(defaults)) {
		value := samples[key]
		if value == "" {
			value = defaults[key]
		}
		if value == "" {
			return "", fmt.Errorf("%s has no default: samples of this test needs a value", key)
		}
		lines = append(lines, key+"="+value)
	}
	env, args := lines, []string{of}
	if inFile {
		if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
			return "", err
		}
		env, args = nil, []string{of, "--config", file}
	}
	old, err := printConfig(ctx, b.old, env, args...)
	if err != nil {
		return "", fmt.Errorf("the old program: %w", err)
	}
	now, err := printConfig(ctx, b.new, env, args...)
	if err != nil {
		return "", err
	}
	var errs []error
	for key, value := range old {
		if got, ok := now[key]; !ok || got != value {
			errs = append(errs, fmt.Errorf("%s: %q, before %q", key, got, value))
		}
	}
	return fmt.Sprintf("%d settings are known and have their values; %d are new", len(old), len(now)-len(old)),
		errors.Join(errs...)
}

// printConfig returns the settings that a command prints, by their names.
func printConfig(ctx context.Context, p programs, env []string, args ...string) (map[string]string, error) {
	res, err := execute(ctx, env, p.path("buildyard"), append(slices.Clone(args), "--print-config")...)
	if err != nil || res.code != 0 {
		return nil, errors.Join(err, fmt.Errorf("%s --print-config: status %d: %s", strings.Join(args, " "), res.code,
			res.stderr))
	}
	values := map[string]string{}
	for line := range strings.SplitSeq(res.stdout, "\n") {
		key, value, ok := strings.Cut(line, "=")
		if !ok {
			continue
		}
		if at := strings.LastIndex(value, " # "); at >= 0 {
			value = value[:at]
		}
		values[key] = strings.TrimSpace(value)
	}
	if len(values) == 0 {
		return nil, fmt.Errorf("%s --print-config prints nothing", strings.Join(args, " "))
	}
	return values, nil
}

// changedDefaults are the defaults that changed on purpose, as docs/upgrade.md describes: without
// authentication services listen on loopback, with it the controller opens no local port.
var changedDefaults = []string{
	"SVC_LISTEN_ADDR 127.0.0.1:8090", "SVC_LISTEN_ADDR 127.0.0.1:8089", "SVC_REGISTRY_LISTEN_ADDRESS 127.0.0.1:8089",
	"SVC_LOCAL_LISTEN_ADDR none",
}

// compareDefaults requires that a setting without a value has its former default.
func compareDefaults(ctx context.Context, b *builds, of string) (string, error) {
	equal, changed := 0, 0
	var errs []error
	for _, env := range []string{"SVC_ENABLE_AUTH=false", "SVC_ENABLE_AUTH=true"} {
		old, err := printConfig(ctx, b.old, []string{env}, of)
		if err != nil {
			return "", err
		}
		now, err := printConfig(ctx, b.new, []string{env}, of)
		if err != nil {
			return "", err
		}
		for key, value := range old {
			switch {
			case now[key] == value:
				equal++
			case slices.Contains(changedDefaults, key+" "+now[key]):
				changed++
			default:
				errs = append(errs, fmt.Errorf("%s with %s: %q, before %q", key, env, now[key], value))
			}
		}
	}
	return fmt.Sprintf("%d are equal, %d are others as docs/upgrade.md says", equal, changed), errors.Join(errs...)
}

// otherNames are second names of settings, and of the files of secrets.
func otherNames(ctx context.Context, b *builds) (string, error) {
	secret, address := filepath.Join(b.old.bin, "secret"), filepath.Join(b.old.bin, "address")
	err := errors.Join(os.WriteFile(secret, []byte("text-of-the-secret"), 0o600),
		os.WriteFile(address, []byte("https://a:b@events.example"), 0o600))
	if err != nil {
		return "", err
	}
	count := 0
	var errs []error
	for _, c := range []struct{ of, env, key string }{
		{"up", "SVC_ENABLE_AUTHORIZATION=true", "SVC_ENABLE_CONTROLLER_AUTHORIZATION"},
		{"up", "SVC_ENABLE_AUTHORIZATION=true", "SVC_ENABLE_REGISTRY_AUTHORIZATION"},
		{"registry", "SVC_ENABLE_REGISTRY_AUTHORIZATION=true", "SVC_ENABLE_AUTHORIZATION"},
		{"up", "KEEP_LOGS_FOR=3", "SVC_KEEP_LOGS_FOR"},
		{"registry", "MAX_LOG_SIZE=17", "SVC_MAX_LOG_SIZE"},
		{"up", "SVC_ROOT_TOKEN_FILE=" + secret, "SVC_ROOT_TOKEN"},
		{"up", "SVC_EVENT_LOG_URL_FILE=" + address, "SVC_EVENT_LOG_URL"},
		{"up", "SVC_OIDC_CLIENT_SECRET_FILE=" + secret, "SVC_OIDC_CLIENT_SECRET"},
		{"controller", "SVC_API_KEY_STRING_FILE=" + secret, "SVC_API_KEY_STRING"},
		{"status", "SVC_CLIENT_ROOT_TOKEN_FILE=" + secret, "SVC_CLIENT_ROOT_TOKEN"},
		{"status", "SVC_CLIENT_API_KEY_STRING_FILE=" + secret, "SVC_CLIENT_API_KEY_STRING"},
		{"status", "SVC_CLIENT_BEARER_FILE=" + secret, "SVC_CLIENT_BEARER"},
	} {
		old, err := printConfig(ctx, b.old, []string{c.env}, c.of)
		if err != nil {
			errs = append(errs, fmt.Errorf("the old program, %s: %w", c.env, err))
			continue
		}
		now, err := printConfig(ctx, b.new, []string{c.env}, c.of)
		if err == nil && (old[c.key] == "" || now[c.key] != old[c.key]) {
			err = fmt.Errorf("%s with %s: %q, before %q", c.key, c.env, now[c.key], old[c.key])
		}
		errs = append(errs, err)
		count++
	}
	return fmt.Sprintf("%d names have their effect", count), errors.Join(errs...)
}

// contexts is a file of the commands' contexts with every key.
const contexts = `current: lab
contexts:
  lab:
    controller: http://127.0.0.1:1
  plant:
    controller: https://plant.example
    root-token-file: plant.token
    ca-cert: plant.pem
  ci:
    controller: https://ci.example
    key-id: ci
    key-file: ci.key
  job:
    controller: https://job.example
    bearer-file: job.token
  token:
    controller: https://token.example
    root-token: token-of-the-root-user
    skip-tls-verification: true
  certificate:
    controller: https://certificate.example
    client-cert: c.pem
    client-key: c.key
`

// compareContexts requires that both programs read the same contexts of a file, and that the new
// one changes it in place of the old one.
func compareContexts(ctx context.Context, b *builds, home string) (string, error) {
	dir := filepath.Join(home, ".config", "buildyard")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(dir, "client.yaml"), []byte(contexts), 0o600); err != nil {
		return "", err
	}
	env := []string{"HOME=" + home, "XDG_CONFIG_HOME="}
	var lists [2]string
	for i, p := range []programs{b.old, b.new} {
		res, err := execute(ctx, env, p.path("buildyard"), "context", "list", "-o", "json")
		if err != nil || res.code != 0 {
			return "", errors.Join(err, fmt.Errorf("context list: %s", res.stderr))
		}
		lists[i] = res.stdout
	}
	if lists[0] != lists[1] {
		return "", fmt.Errorf("the contexts are\n%s\nbefore\n%s", lists[1], lists[0])
	}
	if res, err := execute(ctx, env, b.new.path("buildyard"), "context", "use", "plant"); err != nil || res.code != 0 {
		return "", errors.Join(err, errors.New(res.stderr))
	}
	res, err := execute(ctx, env, b.old.path("buildyard"), "context", "list")
	if err != nil || res.code != 0 {
		return "", errors.Join(err, fmt.Errorf("the old program after the new one changed the file: %s", res.stderr))
	}
	return fmt.Sprintf("%d contexts are read alike, and by the old program after a change",
		strings.Count(contexts, "controller:")), nil
}
