package nodeapi_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/nodeapi"
	"github.com/buildyard/buildyard/internal/farm"
)

func serve(t *testing.T, h http.HandlerFunc) *nodeapi.Client {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	c, err := nodeapi.New(server.URL+"/", nodeapi.NewTransport(nil, 1), "secret")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestPollWireForm(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		var in api.PollRequest
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			t.Error(err)
		}
		wait, err := time.ParseDuration(r.URL.Query().Get("wait"))
		if r.Method != http.MethodPost || r.URL.Path != api.PathPoll || err != nil || wait != 4321*time.Millisecond {
			t.Errorf("got %s %s", r.Method, r.URL)
		}
		if got := r.Header.Get("Authorization"); got != "Bearer secret" {
			t.Errorf("Authorization is %q", got)
		}
		if in.NodeID != "n" || r.ProtoMajor != 1 {
			t.Errorf("got %+v over %s", in, r.Proto)
		}
		_, _ = io.WriteString(w,
			`{"status":"OK","message":"","body":{"orders":[{"kind":"start","instance_id":"i","claim":"c"}],"need_full":true}}`)
	})
	got, err := c.Poll(t.Context(), 4321*time.Millisecond, api.PollRequest{NodeID: "n"})
	if err != nil || len(got.Orders) != 1 || !got.NeedFull || got.Orders[0].Kind != api.OrderStart {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestErrorsHaveCodes(t *testing.T) {
	for _, tt := range []struct {
		status int
		body   string
		code   farm.Code
		text   string
	}{
		{
			401, `{"status":"FAIL","message":"Authentication Required"}`, farm.CodeUnauthenticated,
			"Authentication Required",
		},
		{409, `{"status":"FAIL","message":"another agent"}`, farm.CodeConflict, "another agent"},
		{200, `{"status":"FAIL","message":"no such group"}`, farm.CodeRefused, "no such group"},
		{503, `busy`, farm.CodeUnavailable, "without an envelope"},
		{401, `<html>who are you?</html>`, farm.CodeUnavailable, "without an envelope"}, // a proxy
		{403, `<html>no</html>`, farm.CodeUnavailable, "without an envelope"},
		{418, `{"status":"FAIL","message":"tea"}`, farm.CodeInternal, "tea"},
		{200, `<html>`, farm.CodeRefused, "is the address right?"},
	} {
		c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(tt.status)
			_, _ = io.WriteString(w, tt.body)
		})
		_, err := c.Report(t.Context(), api.Report{})
		if farm.CodeOf(err) != tt.code || !strings.Contains(err.Error(), tt.text) {
			t.Errorf("%d %s: got %q (%s), want code %s", tt.status, tt.body, err, farm.CodeOf(err), tt.code)
		}
	}
}

// TestJoinExplains: mistakes of a joining node are explained in a sentence.
func TestJoinExplains(t *testing.T) {
	for status, want := range map[int]string{
		401: "does not accept the token", 404: "check the address and the port", 400: "tea",
	} {
		c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, `{"status":"FAIL","message":"tea"}`)
		})
		if _, err := c.Join(t.Context(), api.JoinRequest{Token: "x"}); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%d: got %v, want %q", status, err, want)
		}
	}
}

// TestJoinWithUserCredential sends the joining user's credential instead of a token, and never the
// credential of the node.
func TestJoinWithUserCredential(t *testing.T) {
	var answer string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("Authorization"); got != "Bearer session" && got != "" {
			t.Errorf("Authorization is %q", got)
		}
		w.WriteHeader(401)
		_, _ = io.WriteString(w, answer)
	})
	answer = `{"status":"FAIL","message":"Authentication Required"}`
	as := c.WithAuthorization(func(r *http.Request) error {
		r.Header.Set("Authorization", "Bearer session")
		return nil
	})
	shy := c.WithAuthorization(func(*http.Request) error {
		return farm.Errorf(farm.CodeUnauthenticated, "no such key")
	})
	for want, join := range map[string]*nodeapi.Client{
		"does not accept this API key": as, "no such key": shy, "--token-file or --token is required": c,
	} {
		if _, err := join.Join(t.Context(), api.JoinRequest{}); farm.CodeOf(err) != farm.CodeUnauthenticated ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestRegistryToken(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		if r.URL.Path != api.PathPass || string(raw) != `{"protocol":1,"node_id":"n","purpose":{"pull":"t"}}` ||
			r.Header.Get("Authorization") != "Bearer secret" {
			t.Errorf("got %s %s", r.URL, raw)
		}
		_, _ = io.WriteString(w, `{"status":"OK","message":"","body":{"pass":"p","life":600}}`)
	})
	if got, err := c.RegistryToken(t.Context(), "n", api.TokenPurpose{Pull: "t"}); err != nil ||
		got != (api.RegistryTokenResponse{Pass: "p", Life: 600}) {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestAddressWithoutScheme: the error suggests the intended address.
func TestAddressWithoutScheme(t *testing.T) {
	for address, want := range map[string]string{
		"127.0.0.1:8090":  "did you mean http://127.0.0.1:8090 ?",
		"controller:8090": "did you mean http://controller:8090 ?",
		"ftp://x":         "", "": "",
	} {
		_, err := nodeapi.New(address, nil, "")
		if err == nil || !strings.Contains(err.Error(), want) ||
			(want == "" && strings.Contains(err.Error(), "did you mean")) {
			t.Errorf("New(%q): got %v, want %q", address, err, want)
		}
	}
}

func TestControllerAway(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	c, err := nodeapi.New(server.URL, nodeapi.NewTransport(nil, 1), "")
	if err != nil {
		t.Fatal(err)
	}
	server.Close()
	if _, err := c.Join(t.Context(), api.JoinRequest{}); farm.CodeOf(err) != farm.CodeUnavailable {
		t.Errorf("got %v, want unavailable", err)
	}
	if err := c.Disjoin(t.Context(), "n"); farm.CodeOf(err) != farm.CodeUnavailable {
		t.Errorf("got %v, want unavailable", err)
	}
}

func TestCancelEndsAHangingPoll(t *testing.T) {
	hanging := make(chan struct{})
	c := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		close(hanging)
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-hanging; cancel() }()
	if _, err := c.Poll(ctx, time.Minute, api.PollRequest{}); err == nil {
		t.Error("a cancelled poll has no error")
	}
}

func TestAddress(t *testing.T) {
	for _, address := range []string{"", "controller:8090", "ftp://x", "http://", "http://a b"} {
		if _, err := nodeapi.New(address, nil, ""); farm.CodeOf(err) != farm.CodeInvalid {
			t.Errorf("New(%q): got %v", address, err)
		}
	}
}

// TestUntrustedCertificate: the error names the option that sets the CA.
func TestUntrustedCertificate(t *testing.T) {
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.StartTLS()
	t.Cleanup(server.Close)
	c, err := nodeapi.New(server.URL, nodeapi.NewTransport(nil, 1), "secret")
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Poll(t.Context(), time.Millisecond, api.PollRequest{})
	if farm.CodeOf(err) != farm.CodeUnavailable || !strings.Contains(err.Error(), "is not trusted") ||
		!strings.Contains(err.Error(), "--ca-cert") {
		t.Errorf("%v", err)
	}
}
