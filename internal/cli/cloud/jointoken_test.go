package cloud

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/cli"
)

// TestCreatedTokenExpires: a token that is created without --ttl expires after 24 hours, and the permanent one never.
func TestCreatedTokenExpires(t *testing.T) {
	for args, want := range map[string]struct{ ttl, text string }{
		"":                {"24h0m0s", "; it expires at "},
		"--once":          {"24h0m0s", "; it expires at "},
		"--description x": {"24h0m0s", "; it expires at "},
		"--once --ttl 1h": {"1h0m0s", "; it expires at "},
		"--ttl 7d":        {"168h0m0s", "; it expires at "},
		"--new":           {"", "; it does not expire"},
	} {
		var req api.CreateJoinToken
		controller := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
				t.Error(err)
			}
			made := api.JoinToken{ID: "id", Token: "secret"}
			if life, err := time.ParseDuration(req.TTL); err == nil {
				made.Expires = time.Now().Add(life)
			}
			_ = json.NewEncoder(w).Encode(map[string]any{"status": "OK", "body": made})
		}))
		var out, errs bytes.Buffer
		cmd := TokenCommand(cli.Streams{Out: &out, Err: &errs}, nil)
		code := cli.Run(t.Context(), cmd, append(strings.Fields(args), "--controller", controller.URL))
		controller.Close()
		if code != cli.ExitOK || req.TTL != want.ttl || out.String() != "secret\n" ||
			!strings.Contains(errs.String(), want.text) {
			t.Errorf("%q: exit code %d, lifetime %q, want %q; %q %q", args, code, req.TTL, want.ttl, out.String(),
				errs.String())
		}
	}
}

// TestTokenLifetimes: --ttl has the syntax of "key create".
func TestTokenLifetimes(t *testing.T) {
	for _, text := range []string{"0s", "7", "1x", "-1h", ""} {
		var errs bytes.Buffer
		cmd := TokenCommand(cli.Streams{Out: &errs, Err: &errs}, nil)
		cmd.SetErr(&errs)
		code := cli.Run(t.Context(), cmd, []string{"--once", "--ttl=" + text})
		if code != cli.ExitUsage || !strings.Contains(errs.String(), "want days such as 90d") {
			t.Errorf("%q: exit code %d, %q", text, code, errs.String())
		}
	}
}

// TestTokenAcceptsSettings: the flags that the command had in earlier releases are accepted, and are not in the help.
func TestTokenAcceptsSettings(t *testing.T) {
	cmd := TokenCommand(cli.Streams{}, nil)
	if err := cmd.ParseFlags([]string{"--enable-auth", "--listen-addr", ":8090", "--pull-timeout=1m"}); err != nil {
		t.Error(err)
	}
	if cmd.Flags().NArg() != 0 || strings.Contains(cmd.UsageString(), "listen-addr") {
		t.Errorf("arguments %v; usage:\n%s", cmd.Flags().Args(), cmd.UsageString())
	}
}
