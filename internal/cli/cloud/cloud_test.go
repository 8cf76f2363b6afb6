package cloud

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/cli"
)

func TestMatch(t *testing.T) {
	list := []selectable{
		{id: "0197-aaaa", names: []string{"nightly", "job-1"}, ended: true},
		{id: "0197-bbbb", names: []string{"nightly", "job-2"}},
		{id: "0197-cccc", names: []string{"twice"}},
		{id: "0197-dddd", names: []string{"twice"}},
		{id: "0197-eeee", names: []string{"over"}, ended: true},
		{id: "0197-bbbb", names: []string{"nightly", "job-2"}},
		{id: "0198-ffff", names: []string{"0197-"}},
	}
	for text, want := range map[string]string{
		"nightly": "0197-bbbb", "job-1": "0197-aaaa", "over": "0197-eeee", "0197-d": "0197-dddd", "0197-D": "0197-dddd",
		"0197-": "0198-ffff", "0198": "0198-ffff", "twice": "2 instances match", "0197-b": "0197-bbbb",
		"019": "instances match", "none": "not found; see",
	} {
		got, err := instances.matchEntry(list, text)
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) {
			t.Errorf("%s is %s, want %s", text, got, want)
		}
	}
	if got := quoteLiteral(`a"b\c*`); got != `"a\"b\\c*"` {
		t.Errorf("quoted: %s", got)
	}
}

// TestWhatEndsAWait: the user's end and --timeout have codes of their own, whatever the
// network made of them.
func TestWhatEndsAWait(t *testing.T) {
	away := &client.Error{Code: client.ErrUnreachable, Message: "the controller is away"}
	for name, tc := range map[string]struct {
		limit time.Duration
		err   func(ctx context.Context) error
		code  int
		says  string
	}{
		"late": {
			time.Second, context.Cause, cli.ExitTimeout, "timed out after 1s (--timeout): it goes on",
		},
		"late and away": {time.Second, func(ctx context.Context) error {
			return errors.Join(context.Cause(ctx), away)
		}, cli.ExitTimeout, "the controller is away: it goes on"},
		"interrupted": {0, context.Cause, cli.ExitInterrupted, "interrupted: it goes on"},
		"cut in the middle": {0, func(context.Context) error {
			return away
		}, cli.ExitInterrupted, "interrupted: it goes on"},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, stop := context.WithCancelCause(t.Context())
			if tc.limit == 0 {
				time.AfterFunc(time.Second, func() { stop(errors.New("interrupt signal received")) })
			}
			w := waitOptions{timeout: tc.limit}
			err := w.waitWithTimeout(ctx, "it goes on", func(ctx context.Context) error {
				<-ctx.Done()
				return tc.err(ctx)
			})
			err = WithAdvice(ctx, err, Target{Flag: "--controller", Setting: "SVC_CONTROLLER"})
			stop(nil)
			if !cli.HasExitCode(err) || cli.CodeOf(err) != tc.code || !strings.HasSuffix(err.Error(), tc.says) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}

func TestMeter(t *testing.T) {
	var out bytes.Buffer
	m := newProgressMeter(&out)
	m.expectItems("a", "b")
	for _, share := range []float64{0, 0.1, 0.3, 0.31, 0.9} {
		m.updateItem("a", "Pulling", share)
	}
	m.updateItem("a", "Started", 1)
	m.end()
	if want := "a  Pulling\na  Pulling  30%\na  Pulling  90%\na  Started\n"; out.String() != want {
		t.Errorf("elsewhere: %q, want %q", out.String(), want)
	}
	out.Reset()
	m = newProgressMeter(&out)
	m.columns = 50
	m.expectItems("a", "b", "c")
	for _, id := range []string{"a", "b", "c"} {
		m.updateItem(id, "Pülling", 0.3)
		m.updateItem(id, "Started\x1b", 1)
	}
	m.end()
	m.end()
	lines := strings.Split(out.String(), "\r")
	if last := lines[len(lines)-1]; last != "[==============================] 100%  3 of 3  St\n" {
		t.Errorf("on a terminal: %q", last)
	}
	for _, line := range lines[1:] {
		if n := len([]rune(strings.TrimSuffix(line, "\n"))); n != 49 {
			t.Errorf("a line of %d columns: %q", n, line)
		}
	}
}

// TestAWatchedListOutlivesItsController: changes during an outage of the controller are shown after
// its return.
func TestAWatchedListOutlivesItsController(t *testing.T) {
	lists := []string{
		`[{"id":"a","name":"one"},{"id":"b","name":"two"},{"id":"c","name":"three"}]`, "", "",
		`[{"id":"b","name":"second"}]`, "refused",
	}
	for format, want := range map[cli.Format]string{
		cli.Table: "ID  NAME   FALLBACK  DESCRIPTION\na   one    -         -\nb   two    -         -\nc   three  - " +
			"        -\n" +
			"b   second  -         -\na   gone\nc   gone\n",
		cli.Name: "a\nb\nc\nb\n",
		cli.JSON: `{"type":"set","id":"a","item":{"id":"a","name":"one"}}` + "\n" +
			`{"type":"set","id":"b","item":{"id":"b","name":"two"}}` + "\n" +
			`{"type":"set","id":"c","item":{"id":"c","name":"three"}}` + "\n" +
			`{"type":"set","id":"b","item":{"id":"b","name":"second"}}` + "\n" +
			`{"type":"gone","id":"a"}` + "\n" + `{"type":"gone","id":"c"}` + "\n",
	} {
		synctest.Test(t, func(t *testing.T) {
			n := 0
			api := answering(t, func(w http.ResponseWriter) {
				switch body := lists[n]; body {
				case "":
					w.WriteHeader(http.StatusServiceUnavailable)
					_, _ = w.Write([]byte(`{"status":"FAIL","message":"the store is away"}`))
				case "refused":
					_, _ = w.Write([]byte(`{"status":"FAIL","message":"no more"}`))
				default:
					_, _ = w.Write([]byte(`{"status":"OK","body":` + body + `}`))
				}
				n++
			})
			var out, errs bytes.Buffer
			a := &Command{Streams: cli.Streams{Out: &out, Err: &errs}, Output: format, API: api}
			look := func(ctx context.Context) ([]group, error) { return a.API.Groups(ctx, client.ListOptions{}) }
			err := watchList(t.Context(), a, groupView, look)
			if out.String() != want || errs.String() != "the store is away; retrying\n" || err == nil ||
				err.Error() != "no more" {
				t.Errorf("%s: %q, want %q; %q; %v", format, out.String(), want, errs.String(), err)
			}
		})
	}
}

type group = api.Group

// answering returns a client whose calls are answered without a network.
func answering(t *testing.T, answer func(http.ResponseWriter)) *client.Controller {
	t.Helper()
	var mu sync.Mutex
	c, err := client.NewController("http://cloud.example",
		client.Options{Retries: client.NoRetries, Transport: trip(func(r *http.Request) *http.Response {
			mu.Lock()
			defer mu.Unlock()
			w := httptest.NewRecorder()
			answer(w)
			resp := w.Result()
			resp.Request = r
			return resp
		})})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

type trip func(*http.Request) *http.Response

func (f trip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r), nil }
