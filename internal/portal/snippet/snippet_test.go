package snippet

import (
	"go/parser"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/client"
)

// TestCredentialsOfSnippets: a request as code uses the visitor's own kind of credential, and holds no secret.
func TestCredentialsOfSnippets(t *testing.T) {
	for _, c := range []struct {
		kind, user      string
		curl, cli, code string
	}{
		{"root", "root", `-u "root:$BUILDYARD_TOKEN"`, "--token-file root-token", "client.RootToken("},
		{"key", "ci", "-H @session.txt", "--api-key-id ci --api-key-file ci.pem", "client.ParseAPIKey("},
		{"key", "$(id)", "-H @session.txt", "--api-key-id USER --api-key-file USER.pem", "client.ParseAPIKey("},
		{"oidc", "ann", "Authorization: Bearer $BUILDYARD_TOKEN", "--bearer-file token", "client.Bearer("},
		{"certificate", "tc", "--cert tc.pem --key tc.key", "--client-cert tc.pem --client-key tc.key", "Options{}"},
	} {
		caller := NewCaller("https://build.example:8090", c.kind, c.user)
		list := caller.Start(&client.StartRequest{TemplateID: "t"}, "debian")
		for i, want := range []string{c.curl, c.cli, c.code} {
			if !strings.Contains(list[i].Text, want) || !strings.Contains(list[i].Text, "https://build.example:8090") {
				t.Errorf("%s of %s: %q is not in %s", list[i].ID, c.kind, want, list[i].Text)
			}
		}
	}
	cert := NewCaller("http://localhost", "certificate", "").githubJob("start")
	for _, want := range []string{"SVC_CLIENT_CERT: client.pem\n", `printf '%s\n' "$CERT_KEY" >client.key`} {
		if !strings.Contains(cert, want) {
			t.Errorf("%q is not in %s", want, cert)
		}
	}
	caller := NewCaller("http://localhost", "", "")
	if got := caller.Curl("GET", "/api/v1/node", ""); got != "curl -s 'http://localhost/api/v1/node'" {
		t.Errorf("without a log-in: %s", got)
	}
}

// TestStartAsCode: the values of a start are in each kind of code, quoted for it.
func TestStartAsCode(t *testing.T) {
	version := 3
	r := client.StartRequest{
		TemplateID: "t", Name: "it's; $(rm)", Count: 2, TTL: client.Duration(2 * time.Hour), Version: &version,
		Metadata: map[string]any{"branch": "main"}, Disk: &client.Disk{Size: "80G"},
		Ports:         []client.PortRule{{Name: "ssh", GuestPort: 22, HostPort: 2222}},
		StartupScript: []byte("echo 1\nEOF\n"), ScriptMonitoring: true, ScriptFailHandler: client.KeepOnFailure,
	}
	caller := NewCaller("http://localhost", "", "")
	text := map[string]string{}
	for _, s := range caller.Start(&r, "my debian") {
		text[s.ID] = s.Text
	}
	for id, list := range map[string][]string{
		"cli": {
			"buildyard instance start 'my debian'", `--name 'it'\''s; $(rm)'`, "--ttl 2h0m0s", "--version 3",
			"--metadata branch=main", "--port ssh:22:2222", "--disk 80G", "--on-failure keep",
			"<<'EOF_'\necho 1\nEOF\nEOF_",
		},
		"go": {
			`Name: "it's; $(rm)"`, "TTL: client.Duration(7200 * time.Second)", "Version: new(3)",
			`map[string]any{"branch":"main"}`,
			`&client.Disk{Size:"80G"`, "ScriptFailHandler: client.FailHandler(1)",
		},
		"github": {
			"SVC_CONTROLLER: \"http://localhost\"", ">instances.txt <<'EOF_'", "          EOF_\n", "if: always()",
		},
		"gitlab": {"after_script:", "      echo 1\n"},
	} {
		for _, want := range list {
			if !strings.Contains(text[id], want) {
				t.Errorf("%q is not in %s:\n%s", want, id, text[id])
			}
		}
	}
	if _, err := parser.ParseExpr("func() error {\n" + text["go"] + "\nreturn nil\n}"); err != nil {
		t.Errorf("the Go code: %v\n%s", err, text["go"])
	}
}

// TestNotInCommand: what the command line client cannot request is named, never left out silently.
func TestNotInCommand(t *testing.T) {
	r := client.StartRequest{
		TemplateID: "t", TTL: client.Duration(1500 * time.Millisecond), Ports: []client.PortRule{}, HVAPIC: "forceOn",
		CSRActiveConfig: "forceOn", Disk: &client.Disk{Size: "80G", SkipResize: true},
	}
	want := "only in that of curl: hvapic, csr_active_config, skip_container_resize, " +
		"port_forwarding_override without ports\n"
	caller := NewCaller("http://localhost", "", "")
	for _, s := range caller.Start(&r, "") {
		switch s.ID {
		case "cli", "github", "gitlab":
			if !strings.Contains(s.Text, want) {
				t.Errorf("%s: %s", s.ID, s.Text)
			}
		case "go":
			if !strings.Contains(s.Text, "TTL: client.Duration(1500 * time.Millisecond)") {
				t.Error(s.Text)
			}
		}
	}
	r = client.StartRequest{Ports: []client.PortRule{{Name: "ssh", GuestPort: 22, HostIP: "10.0.0.1"}}}
	want = "# Not in this form, only in that of curl: host_ip of ports\n"
	if got := Command(&r, ""); !strings.HasPrefix(got, want) {
		t.Error(got)
	}
}

// TestHostileValues: no value ends a line of YAML, is an expression of GitHub Actions, an option or a redirection.
func TestHostileValues(t *testing.T) {
	var c Caller
	for name, ends := range map[string]string{
		"a\r      - run: evil": "\r", "n\u2028m": "\u2028", "n\u0085m": "\u0085", "x${{ github.token }}": "x${{ g",
	} {
		for _, s := range c.Start(&client.StartRequest{TemplateID: "t", Name: name}, "") {
			isYAML := s.ID == "github" || s.ID == "gitlab" && !strings.Contains(name, "$")
			if isYAML && strings.Contains(s.Text, ends) {
				t.Errorf("%s of %q:\n%s", s.ID, name, s.Text)
			}
		}
	}
	for _, s := range c.Start(&client.StartRequest{
		TemplateID: "t", Name: "a <<'b", StartupScript: []byte("echo 1\n\u2028EOF\n"),
		Metadata: map[string]any{"k": "1,evil=2", "plain": "1,2"},
	}, "--controller=http://evil.example/x") {
		if s.ID == "curl" || s.ID == "go" {
			continue
		}
		if strings.Contains(s.Text, "evil") || strings.Contains(s.Text, "<<'EOF'") ||
			!strings.Contains(s.Text, "plain=1,2") || !strings.Contains(s.Text, "metadata with commas") {
			t.Errorf("%s:\n%s", s.ID, s.Text)
		}
		if s.ID != "cli" && !strings.Contains(s.Text, ">instances.txt <<'EOF_'") {
			t.Errorf("%s has no file of IDs:\n%s", s.ID, s.Text)
		}
	}
}
