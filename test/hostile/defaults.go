package main

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/test/rig"
)

// defaults are set-ups that would leave a service open.
var defaults = family{name: "unsafe set-up", site: arrangement{none: true}, attacks: []attack{
	{"unknown settings", unknownSettings, false},
	{"secrets that others can read", readableSecrets, false},
	{"listening without authentication", exposed, false},
}}

// refusedStart starts a service that must end without being stopped, with one line that contains a
// text.
func (o *outcome) refusedStart(ctx context.Context, s *site, service string, settings map[string]string, says string) {
	addr, err := rig.FreeAddr(ctx)
	if err != nil {
		o.check(err)
		return
	}
	name := uuid.NewString()[:8]
	p := rig.NewProcess(s.dir, name, s.programs.Path("buildyard"), service)
	p.Set(map[string]string{"SVC_LISTEN_ADDR": addr})
	if service == "controller" {
		p.Set(map[string]string{"SVC_DATA_DIR": filepath.Join(s.dir,
			"data-"+name), "SVC_REGISTRY": "http://127.0.0.1:1"})
	} else {
		p.Set(map[string]string{"SVC_BASE_PATH": filepath.Join(s.dir,
			"storage-"+name), "SVC_LOCAL_LISTEN_ADDR": "none"})
	}
	p.Set(settings)
	if err := p.Start(); err != nil {
		o.check(err)
		return
	}
	for end := time.Now().Add(rig.ReadyTime); p.Running() && time.Now().Before(end); {
		if a, err := from(rootHost).send(ctx, "GET http://"+addr+"/readyz", ""); err == nil && a.code == http.StatusOK {
			break
		}
		rig.Pause(ctx, 20*time.Millisecond)
	}
	if p.Running() {
		o.take("started")
		o.fault("the %s starts with %v", service, settings)
		o.check(p.End())
		return
	}
	said, _, _ := strings.Cut(p.Tail(), "\nSee: ")
	if !strings.Contains(said, says) || strings.Contains(said, "\n") {
		o.fault("the %s with %v says %.300q, want one line with %q", service, settings, said, says)
	}
	o.refuse("start refused")
}

func unknownSettings(ctx context.Context, s *site, o *outcome) {
	for _, c := range []struct{ service, key, value, says string }{
		{"controller", "SVC_ENABLE_AUHT", "true", "SVC_ENABLE_AUTH"},
		{"registry", "SVC_ENABLE_AUHT", "true", "SVC_ENABLE_AUTH"},
		{"controller", "SVC_ROOT_TOKEN_FIEL", "x", "SVC_ROOT_TOKEN"},
		{"controller", "SVC_BASE_PATH", "/x", "a setting of the registry"},
		{"registry", "SVC_DATA_DIR", "/x", "a setting of the controller"},
		{"registry", "SVC_BACKEND_S3_BUCKET", "x", "SVC_BACKEND_S3_BUCKET"},
		{"controller", "SVC_NO_SUCH_THING_AT_ALL", "x", "SVC_NO_SUCH_THING_AT_ALL"},
		{"controller", "SVC_STANDALONE", "false", "SVC_ETCD_ENDPOINTS"},
	} {
		o.refusedStart(ctx, s, c.service, map[string]string{c.key: c.value}, c.says)
	}
	o.effect("nothing was served")
}

func readableSecrets(ctx context.Context, s *site, o *outcome) {
	token := filepath.Join(s.dir, "readable.token")
	o.check(os.WriteFile(token, []byte("a token that is long enough\n"), 0o600))
	for _, mode := range []os.FileMode{0o644, 0o640, 0o604, 0o660} {
		o.check(os.Chmod(token, mode))
		for _, service := range []string{"controller", "registry"} {
			o.refusedStart(ctx, s, service, map[string]string{"SVC_ENABLE_AUTH": "true", "SVC_ROOT_TOKEN_FILE": token},
				"accessible by other users")
		}
	}
	data := filepath.Join(s.dir, "readable-data")
	o.check(os.MkdirAll(filepath.Join(data, "store"), 0o700))
	for _, mode := range []os.FileMode{0o755, 0o750, 0o701} {
		o.check(os.Chmod(data, mode))
		o.refusedStart(ctx, s, "controller", map[string]string{"SVC_DATA_DIR": data}, "accessible by other users")
	}
	o.refusedStart(ctx, s, "controller", map[string]string{"SVC_ENABLE_AUTH": "true", "SVC_ROOT_TOKEN": "short"},
		"SVC_ROOT_TOKEN")
	o.effect("nothing was served")
}

// exposed lists where services listen without authentication: on loopback, or at a configured
// address, with a warning, an alarm and a banner.
func exposed(ctx context.Context, s *site, o *outcome) {
	for _, service := range []string{"controller", "registry"} {
		text, err := rig.Output(ctx, "", s.programs.Path("buildyard"), service, "--print-config")
		o.check(err)
		for line := range strings.Lines(text) {
			if value, ok := strings.CutPrefix(line, "SVC_LISTEN_ADDR="); ok {
				if !strings.HasPrefix(value, "127.0.0.1:") {
					o.take("listens elsewhere")
					o.fault("a %s without authentication listens on %s", service, value)
					continue
				}
				o.refuse("loopback")
			}
		}
	}

	own := &site{arrangement: arrangement{noAuth: true}, dir: filepath.Join(s.dir, "exposed"), programs: s.programs}
	addr, err := rig.FreeAddr(ctx)
	if err != nil {
		o.check(err)
		return
	}
	port := addr[strings.LastIndex(addr, ":"):]
	own.settings = map[string]string{"SVC_LISTEN_ADDR": "0.0.0.0" + port}
	defer func() { o.check(own.close()) }()
	if err := own.startAt(ctx, "http://127.0.0.1"+port); err != nil {
		o.check(err)
		return
	}
	o.check(own.alarmed(ctx, api.AlarmNoAuth))
	for _, page := range []string{"/nodes", "/instances", "/templates"} {
		a, err := from(rootHost).send(ctx, "GET "+own.controller+page, "", "Accept", "text/html")
		if err != nil || !strings.Contains(string(a.body), "Authentication is off") {
			o.fault("the page %s has no banner: %d %v", page, a.code, err)
		}
	}
	if n := strings.Count(own.up.Tail(), "authentication is off and other machines can connect"); n != 1 {
		o.fault("the start logs %d warnings, want 1", n)
	}
	o.refuse("warning, alarm and banner")
	o.effect("operators are told in 3 places")
}
