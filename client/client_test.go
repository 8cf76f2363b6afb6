package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
)

// serve returns a client of a controller that answers so.
func serve(t *testing.T, o client.Options, answer http.HandlerFunc) *client.Controller {
	t.Helper()
	s := httptest.NewServer(answer)
	t.Cleanup(s.Close)
	c, err := client.NewController(s.URL+"/", o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func say(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Request-Id", "r1")
	w.WriteHeader(code)
	fmt.Fprint(w, text)
}

func TestErrors(t *testing.T) {
	for _, tc := range []struct {
		status int
		answer string
		code   client.Code
		says   string
	}{
		{200, `{"status":"FAIL","message":"Not found"}`, client.ErrNotFound, "Not found"},
		{200, `{"status":"FAIL","message":"VM not in the registry"}`, client.ErrNotFound, "VM not in the registry"},
		{200, `{"status":"FAIL","message":"No such tag x"}`, client.ErrNoVersion, "No such tag x"},
		{
			400, `{"status":"FAIL","message":"Did not find any versions with tag x"}`, client.ErrNoVersion,
			"Did not find",
		},
		{200, `{"status":"FAIL","message":"it is full"}`, client.ErrRefused, "it is full"},
		{400, `{"status":"FAIL","message":"count: is bad"}`, client.ErrInvalid, "count: is bad"},
		{
			401, `{"status":"FAIL","message":"Authentication Required"}`, client.ErrUnauthenticated,
			"Authentication Required",
		},
		{403, `{"status":"FAIL","message":"x"}`, client.ErrForbidden, "x"},
		{404, `{"status":"FAIL","message":"No such route"}`, client.ErrUnsupported, "No such route"},
		{413, `{"status":"FAIL","message":"x"}`, client.ErrTooLarge, "x"},
		{500, `{"status":"FAIL","message":"Internal error"}`, client.ErrInternal, "Internal error"},
		{503, `{"status":"FAIL","message":"try again"}`, client.ErrUnavailable, "try again"},
		{200, `<html>`, client.ErrForeign, "not as a controller does"},
		{200, `{}`, client.ErrForeign, "not as a controller does"},
		{302, ``, client.ErrForeign, "302"},
		{200, `{"status":"OK","body":[1]}`, client.ErrForeign, "another form"},
	} {
		c := serve(t, client.Options{Retries: client.NoRetries},
			func(w http.ResponseWriter, _ *http.Request) { say(w, tc.status, tc.answer) })
		_, err := c.Instance(t.Context(), "a")
		e, ok := errors.AsType[*client.Error](err)
		if !ok || !errors.Is(err, tc.code) || client.CodeOf(err) != tc.code ||
			!strings.Contains(err.Error(), tc.says) || e.RequestID != "r1" || e.Status != tc.status {
			t.Errorf("%d %s: %#v", tc.status, tc.answer, err)
		}
	}
}

// TestTriesAgainOnlyWhatIsSafe: a call that may have taken effect is made again only if it is idempotent.
func TestTriesAgainOnlyWhatIsSafe(t *testing.T) {
	for name, tc := range map[string]struct {
		do   func(*client.Controller) error
		want int32
	}{
		"list": {func(c *client.Controller) error {
			_, err := c.Instances(t.Context(), client.ListOptions{})
			return err
		}, 3},
		"terminate": {func(c *client.Controller) error { return c.Terminate(t.Context(), "a") }, 3},
		"start": {func(c *client.Controller) error {
			_, err := c.Start(t.Context(), client.StartRequest{})
			return err
		}, 1},
		"revert": {func(c *client.Controller) error {
			return c.RevertTemplate(t.Context(), "a", client.Version{})
		}, 1},
		"restart": {func(c *client.Controller) error { return c.Restart(t.Context(), client.RestartRequest{}) }, 1},
		"start once": {func(c *client.Controller) error {
			_, err := c.Start(t.Context(), client.StartRequest{IdempotencyKey: client.NewKey()})
			return err
		}, 3},
	} {
		var calls atomic.Int32
		keys := map[string]bool{}
		c := serve(t, client.Options{Retries: 2}, func(w http.ResponseWriter, r *http.Request) {
			calls.Add(1)
			keys[r.Header.Get("Idempotency-Key")] = true
			say(w, 503, `{"status":"FAIL","message":"later"}`)
		})
		if err := tc.do(c); !errors.Is(err, client.ErrUnavailable) || calls.Load() != tc.want || len(keys) != 1 {
			t.Errorf("%s: %d calls with %d keys, want %d with one: %v", name, calls.Load(), len(keys), tc.want, err)
		}
	}
}

func TestAnswersAreBounded(t *testing.T) {
	c := serve(t,
		client.Options{MaxAnswer: 100, Retries: client.NoRetries}, func(w http.ResponseWriter, _ *http.Request) {
			say(w, 200, `{"status":"OK","body":"`+strings.Repeat("x", 200)+`"}`)
		})
	if _, err := c.Instance(t.Context(), "a"); !errors.Is(err, client.ErrTooLarge) {
		t.Error(err)
	}
	cut := serve(t, client.Options{Retries: client.NoRetries}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		say(w, 200, `{"status":"OK","body":`)
	})
	if _, err := cut.Instance(t.Context(), "a"); !errors.Is(err, client.ErrUnreachable) {
		t.Errorf("a cut answer: %v", err)
	}
	slow := serve(t, client.Options{Timeout: 50 * time.Millisecond, Retries: client.NoRetries},
		func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	if _, err := slow.Instance(t.Context(), "a"); !errors.Is(err, client.ErrUnreachable) ||
		!errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a silent service: %v", err)
	}
}

func TestWhatIsSent(t *testing.T) {
	var got struct {
		user, pass, path, body string
	}
	c := serve(t,
		client.Options{Credentials: client.RootToken("s3cret")}, func(w http.ResponseWriter, r *http.Request) {
			got.user, got.pass, _ = r.BasicAuth()
			got.path = r.URL.String()
			raw := make([]byte, 1000)
			n, _ := r.Body.Read(raw)
			got.body = string(raw[:n])
			say(w, 200, `{"status":"OK","message":"","body":["i"],"more":1}`)
		})
	var raw json.RawMessage
	ids, err := c.Start(client.KeepBody(t.Context(), &raw), client.StartRequest{
		TemplateID: "t", StartupScript: []byte("hi"), TTL: client.Duration(90 * time.Second),
		Ports: []client.PortRule{},
	})
	if err != nil || len(ids) != 1 || string(raw) != `["i"]` || got.user != "root" || got.pass != "s3cret" {
		t.Errorf("%v %v %s %+v", ids, err, raw, got)
	}
	if want := `{"vmid":"t","ttl":"1m30s","startup_script":"aGk=","port_forwarding_override":[]}`; got.body != want {
		t.Errorf("sent %s, want %s", got.body, want)
	}
	if err := c.RevertTemplate(t.Context(), "t", client.Version{Tag: "a+b/c #1"}); err != nil ||
		got.path != "/api/v1/registry/revert?id=t&tag=a%2Bb%2Fc+%231" {
		t.Errorf("%s %v", got.path, err)
	}
	if _, err := c.Instance(t.Context(), ""); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("an empty id: %v", err)
	}
	if text := fmt.Sprintf("%v %+v %#v", client.RootToken("s3cret"), client.RootToken("s3cret"),
		client.RootToken("s3cret")); strings.Contains(text, "s3cret") {
		t.Errorf("the token is printed: %s", text)
	}
}

// TestWatchTakesItselfUp: after a break every present instance is reported again, and those removed since then
// are reported as gone.
func TestWatchTakesItselfUp(t *testing.T) {
	var streams atomic.Int32
	set := func(id string) string { return `{"type":"set","instance":{"instance_id":"` + id + `","vm":{}}}` + "\n" }
	c := serve(t, client.Options{}, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/x-ndjson")
		if streams.Add(1) == 1 {
			fmt.Fprint(w, set("a"), set("b"), `{"type":"synced"}`+"\n", `{"type":"ping"}`+"\n")
			return // the stream breaks
		}
		fmt.Fprint(w, set("b"), `{"type":"synced"}`+"\n", `{"type":"gone","instance_id":"b"}`+"\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	var told []string
	breaks := 0
	for change, err := range c.WatchInstances(t.Context(),
		client.InstanceWatch{OnInterrupt: func(error) { breaks++ }}) {
		if err != nil {
			t.Fatal(err)
		}
		if told = append(told, string(change.Type)+change.InstanceID); len(told) == 7 {
			break
		}
	}
	if got := strings.Join(told, " "); got != "seta setb synced setb gonea synced goneb" || breaks != 1 {
		t.Errorf("told %s, %d breaks", got, breaks)
	}
}

func TestWaits(t *testing.T) {
	states := []string{"Scheduling", "Pulling", "Started"}
	var n atomic.Int32
	c := serve(t, client.Options{}, func(w http.ResponseWriter, _ *http.Request) {
		i := min(int(n.Add(1))-1, len(states)-1)
		say(w, 200, `{"status":"OK","body":{"instance_state":"`+states[i]+`","message":"why"}}`)
	})
	var seen []string
	if _, err := c.WaitStarted(t.Context(),
		"a", func(i api.Instance) { seen = append(seen, i.InstanceState) }); err != nil || len(seen) != 3 {
		t.Errorf("%v %v", seen, err)
	}
	states[2] = "Error"
	_, err := c.WaitStarted(t.Context(), "a", nil)
	if e, ok := errors.AsType[*client.WaitError](err); !ok || e.State != "Error" || e.Reason != "why" {
		t.Errorf("%v", err)
	}
}
