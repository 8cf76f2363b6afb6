package buildnode_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/cli/buildnode"
	"github.com/buildyard/buildyard/internal/cli/buildyard"
)

// asker calls the API of a running program.
type asker struct {
	t    *testing.T
	base string
}

func (w asker) ask(method, path, body string) string {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), method, w.base+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	req.SetBasicAuth("root", scriptRoot) // which clouds without authentication ignore
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return string(answer)
}

// until repeats a call until the response matches.
func (w asker) until(want, path string) {
	w.t.Helper()
	match, last := regexp.MustCompile(want), ""
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if last = w.ask("GET", path, ""); match.MatchString(last) {
			return
		}
	}
	w.t.Fatalf("%s%s never said %s; last:\n%s", w.base, path, want, last)
}

// node is the data directory of a node, whose agent is run by the program's own command.
type node struct {
	t        *testing.T
	id, host string
	dir      string
}

func (n *node) main(ctx context.Context, args ...string) (code int, said string) {
	var out bytes.Buffer
	code = buildnode.Main(ctx, append([]string{"--data-dir", n.dir}, args...), buildnode.Streams{Out: &out, Err: &out})
	return code, out.String()
}

// join creates a node of the cloud whose VMs are reached at an address.
func join(t *testing.T, s *buildyard.ControllerService, name, host string) *node {
	t.Helper()
	n := &node{t: t, host: host, dir: filepath.Join(t.TempDir(), name)}
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(s.JoinToken()), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, said := n.main(t.Context(), "join", s.URL(), "--token-file", token, "--name", name, "--host",
		host); code != 0 {
		t.Fatal(said)
	}
	var nodes struct{ Body []api.Node }
	if err := json.Unmarshal([]byte(asker{t, s.URL()}.ask("GET", "/api/v1/node?filter=name:"+name, "")),
		&nodes); err != nil || len(nodes.Body) != 1 {
		t.Fatal(nodes, err)
	}
	n.id = nodes.Body[0].NodeID
	return n
}

// run runs the agent until its first poll has been answered and stop is called.
func (n *node) run(args ...string) (stop func()) {
	n.t.Helper()
	l, err := (&net.ListenConfig{}).Listen(n.t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		n.t.Fatal(err)
	}
	metrics := l.Addr().String()
	_ = l.Close()
	ctx, cancel := context.WithCancel(n.t.Context())
	var agent sync.WaitGroup
	agent.Go(func() {
		if code, said := n.main(ctx, append([]string{"run", "--driver", "sim", "--metrics-listen", metrics},
			args...)...); code != 0 {
			n.t.Errorf("%d: %s", code, said)
		}
	})
	asker{n.t, "http://" + metrics}.until(`buildyard_node_polls_total\{result="ok"\} [1-9]`, "/metrics")
	return func() {
		cancel()
		agent.Wait()
	}
}

// TestCentralLogsOfNodes: the log of an agent goes to the central logs, unless its node is exempt
// by node/config; when the exemption ends, it goes there again. A registry with authentication
// accepts it with the registry token.
func TestCentralLogsOfNodes(t *testing.T) {
	t.Run("of anybody", func(t *testing.T) { centralLogs(t, map[string]string{}) })
	t.Run("with passes", func(t *testing.T) {
		centralLogs(t, map[string]string{"SVC_ENABLE_AUTH": "true", "SVC_ROOT_TOKEN": scriptRoot})
	})
}

func centralLogs(t *testing.T, settings map[string]string) {
	t.Helper()
	t.Parallel()
	settings["SVC_ENABLE_CENTRAL_LOGGING"] = "true"
	s, end, err := openCloud(t.TempDir(), settings)
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	c := asker{t, s.URL()}
	loud, quiet := join(t, s, "loud", "10.9.9.1"), join(t, s, "quiet", "10.9.9.2")
	for range 2 {
		if answer := c.ask("POST", "/api/v1/node/config",
			fmt.Sprintf(`{"node_id":%q,"disable_central_logging":true}`, quiet.id)); !strings.Contains(answer, `"OK"`) {
			t.Fatal(answer)
		}
		if answer := c.ask("POST", "/api/v1/node/config?disable_central_logging=false&node_id="+loud.id,
			""); !strings.Contains(answer, `"OK"`) {
			t.Fatal(answer)
		}
		before := rows(c, quiet)
		stops := []func(){loud.run(), quiet.run()}
		c.until(fmt.Sprintf(` %s .*agent started`, regexp.QuoteMeta(loud.host)), "/api/v1/log/view?service=node")
		for _, stop := range stops {
			stop() // which sends the last lines
		}
		if after := rows(c, quiet); after != before {
			t.Errorf("%d rows of an exempt node", after-before)
		}
		loud, quiet = quiet, loud
	}
}

// rows counts the rows of a node in the central logs, in which each machine has its own file.
func rows(c asker, n *node) (sum int) {
	var list struct {
		Body []struct {
			Name string `json:"name"`
		} `json:"body"`
	}
	if err := json.Unmarshal([]byte(c.ask("GET", "/api/v1/log/files?service=node", "")), &list); err != nil {
		return 0 // nothing has been written yet
	}
	for _, f := range list.Body {
		sum += strings.Count(c.ask("GET", "/api/v1/log/view?service=node&file="+url.QueryEscape(f.Name), ""),
			" "+n.host+" ")
	}
	return sum
}
