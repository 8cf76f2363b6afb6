package peers_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/buildyard/buildyard/internal/agent/peers"
	"github.com/buildyard/buildyard/internal/diskfile"
	"github.com/buildyard/buildyard/internal/transfer"
)

const mib = 1 << 20

// TestNodesShareAVersion: nodes that pull a version at the same time get it whole, and the registry sends less than one
// copy for each.
func TestNodesShareAVersion(t *testing.T) {
	w := newWorld(t, 48*mib)
	w.firstPull(w.addNode(nil, 0))
	w.nodes = nil // it is not there for the others
	var group errgroup.Group
	const count = 4
	var nodes []*node
	for range count {
		nodes = append(nodes, w.addNode(nil, 0))
	}
	for _, n := range nodes {
		n.pulling.Store(true) // each knows the others from the beginning
	}
	for _, n := range nodes {
		group.Go(func() error { return w.pull(n) })
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	copies := float64(w.layers.Load()) / float64(w.oneCopy)
	t.Logf("%d nodes: the registry sent %.2f copies", count, copies)
	if copies >= count {
		t.Errorf("%d nodes: the registry sent %.2f copies", count, copies)
	}
}

// TestReadFromANode: a node reads a version from one that has all of it.
func TestReadFromANode(t *testing.T) {
	w := newWorld(t, 24*mib)
	first, second := w.addNode(nil, 0), w.addNode(nil, 0)
	w.firstPull(first)
	if err := w.pull(second); err != nil {
		t.Fatal(err)
	}
	t.Logf("the registry sent %.2f copies to the second node, the first node %d bytes",
		float64(w.layers.Load())/float64(w.oneCopy), first.server.Served())
	if first.server.Served() == 0 {
		t.Error("nothing was read from the node that has the version")
	}
}

// TestNextTag: of the next tag, nodes that have the tag before read the changes from each other; one without it reads
// what no later layer has replaced.
func TestNextTag(t *testing.T) {
	w := newWorld(t, 24*mib)
	first, second, empty := w.addNode(nil, 0), w.addNode(nil, 0), w.addNode(nil, 0)
	w.firstPull(first)
	if err := w.pull(second); err != nil {
		t.Fatal(err)
	}
	old := &diskfile.Disk{Path: filepath.Join(t.TempDir(), "old"), Format: diskfile.FormatRaw}
	if err := os.WriteFile(old.Path, w.disk, 0o600); err != nil {
		t.Fatal(err)
	}
	random := rand.NewChaCha8([32]byte{2})
	for at := mib; at < len(w.disk); at += 5 * mib {
		_, _ = random.Read(w.disk[at : at+200_000])
	}
	w.ref.Tag = "v2"
	w.push(&transfer.PushParent{ChainID: w.tip, Disk: old})
	for _, n := range []*node{first, second, empty} {
		sent, before := w.layers.Load(), first.server.Served()
		if err := w.pull(n); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d bytes from the registry, %d from the first node", n.id, w.layers.Load()-sent,
			first.server.Served()-before)
		if n != first && first.server.Served()+second.server.Served() == 0 {
			t.Errorf("%s read nothing from other nodes", n.id)
		}
	}
}

// request sends a request to a node, with the certificate of a reader.
func request(t *testing.T, reader, server *node, method, path, token, body string) (int, string) {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: peers.ClientTLS(reader.identity, server.identity.Key())}
	defer transport.CloseIdleConnections()
	r, err := http.NewRequestWithContext(t.Context(), method, "https://"+server.address+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	resp, err := (&http.Client{Transport: transport}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// TestTokens: a server answers only requests that the token of the cloud permits to the node that sends it.
func TestTokens(t *testing.T) {
	w := newWorld(t, 2*mib)
	server, reader, other := w.addNode(nil, 0), w.addNode(nil, 0), w.addNode(nil, 0)
	w.firstPull(server)
	id := w.ref.ContentID
	path := "/peer/v1/versions/" + id
	read := `{"file":"` + diskName + `","runs":[[0,4096]]}`
	good := w.token(reader, server, id, time.Minute)
	if code, text := request(t, reader, server, "POST", path+"/read", good, read); code != 200 ||
		text != string(w.disk[:4096]) {
		t.Fatalf("a permitted read: %d, %d bytes", code, len(text))
	}
	if code, text := request(t, reader, server, "GET", path, good, ""); code != 200 || !strings.Contains(text, "true") {
		t.Errorf("a permitted request: %d %s", code, text)
	}
	for name, c := range map[string]struct {
		as    *node
		path  string
		token string
	}{
		"no token":        {reader, path, ""},
		"another reader":  {other, path, good},
		"another version": {reader, "/peer/v1/versions/other", good},
		"another server":  {reader, path, w.token(reader, other, id, time.Minute)},
		"expired":         {reader, path, w.token(reader, server, id, -time.Minute)},
		"an hour":         {reader, path, w.token(reader, server, id, time.Hour)},
		"not an ID":       {reader, "/peer/v1/versions/.%2e", w.token(reader, server, "..", time.Minute)},
	} {
		for _, suffix := range []string{"", "/read"} {
			method := map[string]string{"": "GET", "/read": "POST"}[suffix]
			if code, _ := request(t, c.as, server, method, c.path+suffix, c.token, read); code != 401 && code != 404 {
				t.Errorf("%s: %s%s answered %d", name, method, suffix, code)
			}
		}
	}
	if code, _ := request(t, reader, server, "GET", "/peer/v1/versions/none",
		w.token(reader, server, "none", time.Minute), ""); code != 404 {
		t.Errorf("a version that is not here: %d", code)
	}
	for _, bad := range []string{
		"", "{}", `{"file":"../node.json","runs":[[0,1]]}`, `{"file":"disk.img","runs":[]}`,
		`{"file":"disk.img","runs":[[-1,1]]}`, `{"file":"disk.img","runs":[[0,5000000]]}`,
	} {
		if code, _ := request(t, reader, server, "POST", path+"/read", good, bad); code != 400 {
			t.Errorf("%s: %d", bad, code)
		}
	}
	if code, _ := request(t, reader, server, "POST", path+"/read", good,
		fmt.Sprintf(`{"file":"disk.img","runs":[[%d,4096]]}`, len(w.disk))); code != 404 {
		t.Errorf("behind the end of the disk: %d", code)
	}
	config := &tls.Config{InsecureSkipVerify: true}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config}}
	r, err := http.NewRequestWithContext(t.Context(), "GET", "https://"+server.address+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := client.Do(r); err == nil {
		_ = resp.Body.Close()
		t.Errorf("without a certificate: %s", resp.Status)
	}
}

// TestLimits: a server sends others on while its own guests wait, and above its rate.
func TestLimits(t *testing.T) {
	w := newWorld(t, 8*mib)
	waiting := w.addNode(func(p peers.Provider) peers.Provider { return changedProvider{Provider: p, wait: true} }, 0)
	slow, reader := w.addNode(nil, 1024), w.addNode(nil, 0)
	w.firstPull(waiting)
	if err := w.pull(slow); err != nil {
		t.Fatal(err)
	}
	path := "/peer/v1/versions/" + w.ref.ContentID + "/read"
	read := func(server *node) int {
		code, _ := request(t, reader, server, "POST", path, w.token(reader, server, w.ref.ContentID, time.Minute),
			`{"file":"disk.img","runs":[[0,1048576]]}`)
		return code
	}
	if code := read(waiting); code != http.StatusTooManyRequests {
		t.Errorf("while guests wait: %d", code)
	}
	if first, second := read(slow), read(slow); first != 200 || second != http.StatusTooManyRequests {
		t.Errorf("above the rate: %d, then %d", first, second)
	}
	if err := w.pull(reader); err != nil { // from the registry
		t.Fatal(err)
	}
}

// TestWrongCertificate: a peer at another key than the controller has named is not used.
func TestWrongCertificate(t *testing.T) {
	w := newWorld(t, 2*mib)
	server, reader := w.addNode(nil, 0), w.addNode(nil, 0)
	config := peers.ClientTLS(reader.identity, reader.identity.Key())
	dialer := &tls.Dialer{Config: config}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if c, err := dialer.DialContext(ctx, "tcp", server.address); err == nil {
		_ = c.Close()
		t.Error("a connection to another node than the expected one")
	}
}
