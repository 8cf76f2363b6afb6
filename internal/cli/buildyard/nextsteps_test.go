package buildyard

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/cli"
)

// TestNextSteps: the next steps follow the environment over the settings of the file, as the service does.
func TestNextSteps(t *testing.T) {
	for _, tc := range []struct {
		name      string
		env       map[string]string
		tls       bool
		want, not []string
	}{
		{
			"as created", nil, false,
			[]string{
				"is on, and the ports are open to other machines.", "SVC_CONTROLLER=http://127.0.0.1:8090\n",
				"_TOKEN_FILE=", "key create",
			},
			[]string{"SVC_CLIENT_CA"},
		},
		{
			"without authentication",
			map[string]string{"SVC_ENABLE_AUTH": "false"},
			false,
			[]string{"Authentication is off", "open http://127.0.0.1:8090.\n"},
			[]string{"Authentication is on", "_TOKEN_FILE=", "key create", "log in"},
		},
		{
			"without HTTPS",
			map[string]string{"SVC_USE_HTTPS": "false"},
			true,
			[]string{"SVC_CONTROLLER=http://127.0.0.1:8090\n"},
			[]string{"https://", "ca.pem"},
		},
		{
			"with HTTPS",
			map[string]string{"SVC_LISTEN_ADDR": "[::]:8091"},
			true,
			[]string{"SVC_CONTROLLER=https://127.0.0.1:8091\n", "ca.pem", "open to other machines"},
			nil,
		},
		{
			"on one address",
			map[string]string{"SVC_LISTEN_ADDR": "192.0.2.5:8090"},
			false,
			[]string{
				"SVC_CONTROLLER=http://192.0.2.5:8090\n", "log in at http://192.0.2.5:8090 with",
				"The controller listens on 192.0.2.5 only, the registry on all addresses.",
			},
			[]string{"open to other machines", "127.0.0.1"},
		},
		{
			"registry on loopback",
			map[string]string{"SVC_REGISTRY_LISTEN_ADDRESS": "127.0.0.1:8089"},
			false,
			[]string{"The controller listens on all addresses, the registry on 127.0.0.1 only (this machine)."},
			[]string{"open to other machines"},
		},
		{
			"on loopback",
			map[string]string{
				"SVC_REGISTRY_LISTEN_ADDRESS": "localhost:8089", "SVC_LISTEN_ADDR": "[::1]:8090",
			},
			false,
			[]string{
				"the ports are open to programs of this machine only.", "SVC_CONTROLLER='http://[::1]:8090'\n",
			},
			[]string{"open to other machines"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for key, value := range tc.env {
				t.Setenv(key, value)
			}
			args := []string{"--data-dir", filepath.Join(t.TempDir(), "data")}
			if tc.tls {
				args = append(args, "--tls")
			}
			out := runInit(t, args...)
			for _, text := range tc.want {
				if !strings.Contains(out, text) {
					t.Errorf("%q is not in %s", text, out)
				}
			}
			for _, text := range tc.not {
				if strings.Contains(out, text) {
					t.Errorf("%q is in %s", text, out)
				}
			}
		})
	}
}

// TestNextStepsQuote: a shell reads the printed paths as they are.
func TestNextStepsQuote(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "my data's $(x)")
	out := runInit(t, "--data-dir", dir, "--tls")
	script := ""
	for line := range strings.Lines(out) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "export ") {
			script += line + "\n"
		} else if words, ok := strings.CutPrefix(line, "buildyard up --data-dir "); ok {
			script += "DIR=" + words + "\n"
		}
	}
	script += `printf '%s\n' "$DIR" "$SVC_CLIENT_ROOT_TOKEN_FILE" "$SVC_CLIENT_CA"`
	got, err := exec.CommandContext(t.Context(), "sh", "-c", script).Output()
	want := dir + "\n" + filepath.Join(dir, rootTokenFile) + "\n" + filepath.Join(dir, tlsDir, authorityFile) + "\n"
	if err != nil || string(got) != want {
		t.Errorf("%s gives %q, %v, want %q", script, got, err, want)
	}
}

// initErr runs the command init and returns its exit code and standard error.
func initErr(t *testing.T, args ...string) (int, string) {
	t.Helper()
	var out, errs bytes.Buffer
	code := Main(t.Context(), append([]string{"init"}, args...), Streams{Out: &out, Err: &errs})
	return code, errs.String()
}

func TestInitRefusesNames(t *testing.T) {
	for name, want := range map[string]string{
		"bad name/!": `"bad name/!" is not a host name or an IP address`, "": "--name: name is empty",
		"a.example,,b.example": "--name: name is empty", "-a.example": "is not a host name",
		strings.Repeat("a", 64): "is not a host name", "a..example": "is not a host name",
		strings.Repeat("a.", 127) + "a": "is not a host name",
	} {
		dir := filepath.Join(t.TempDir(), "data")
		if code, text := initErr(t, "--data-dir", dir, "--tls", "--name", name); code != cli.ExitUsage ||
			!strings.Contains(text, want) {
			t.Errorf("--name %q: exit %d, %s", name, code, text)
		}
	}
}

// TestInitWarnsOfIgnoredNames: names that a kept certificate lacks are not ignored silently.
func TestInitWarnsOfIgnoredNames(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	first := []string{"--data-dir", dir, "--tls", "--name", "build.example,*.lab.example,192.0.2.7"}
	for range 2 {
		if code, text := initErr(t, first...); code != 0 || text != "" {
			t.Errorf("exit %d, %s", code, text)
		}
	}
	code, text := initErr(t, "--data-dir", dir, "--tls", "--name", "build.example,new.example,192.0.2.8")
	if code != 0 || !strings.Contains(text, "--name new.example,192.0.2.8 is ignored") ||
		!strings.Contains(text, "rm "+filepath.Join(dir, tlsDir, serverCertFile)+" ") {
		t.Errorf("exit %d, %s", code, text)
	}
}
