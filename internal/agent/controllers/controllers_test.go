package controllers

import (
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/datadir"
	"github.com/buildyard/buildyard/internal/agent/nodeapi"
	"github.com/buildyard/buildyard/internal/cloudkey"
	"github.com/buildyard/buildyard/internal/farm"
)

const (
	testNode       = "11111111-2222-4333-8444-555555555555"
	testCredential = "the credential of the node"
)

// fakeController is a controller that proves its own URL, and counts the polls with the node's credential.
type fakeController struct {
	*httptest.Server
	polls  atomic.Int32
	status atomic.Int32 // of its responses to polls; 0: 200
}

// serve starts a controller with the key of a cloud. relay is the controller that it passes requests for proofs on to;
// nil: it proves itself.
func serve(t *testing.T, key cloudkey.Key, secure bool, relay *fakeController) *fakeController {
	t.Helper()
	c := &fakeController{}
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+api.PathCloudProof, func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		if strings.Contains(string(raw)+fmt.Sprint(r.Header), testCredential) {
			t.Error("the request for a proof has the credential")
		}
		if relay != nil {
			body := strings.NewReader(string(raw))
			resp, err := relay.Client().Post(relay.URL+api.PathCloudProof, "application/json", body)
			if err == nil {
				defer resp.Body.Close()
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.Copy(w, resp.Body)
			}
			return
		}
		c.prove(w, key, raw)
	})
	mux.HandleFunc("POST "+api.PathPoll, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "Bearer "+testCredential {
			c.polls.Add(1)
		}
		w.Header().Set("Content-Type", "application/json")
		if status := c.status.Load(); status != 0 {
			w.WriteHeader(int(status))
			_, _ = io.WriteString(w, `{"status":"FAIL","message":"busy"}`)
			return
		}
		_, _ = io.WriteString(w, `{"status":"OK","message":"","body":{}}`)
	})
	c.Server = httptest.NewUnstartedServer(mux)
	if secure {
		c.StartTLS()
	} else {
		c.Start()
	}
	t.Cleanup(c.Close)
	return c
}

// prove answers a request for a proof as a controller does.
func (c *fakeController) prove(w http.ResponseWriter, key cloudkey.Key, raw []byte) {
	w.Header().Set("Content-Type", "application/json")
	var in api.CloudProofRequest
	if err := json.Unmarshal(raw, &in); err != nil || in.URL != c.URL || in.NodeID != testNode ||
		!cloudkey.VerifyRequestMAC(cloudkey.CredentialDigest(testCredential), in.NodeID, in.Nonce, in.URL, in.MAC) {
		_, _ = io.WriteString(w, `{"status":"FAIL","message":"not one of its own addresses"}`)
		return
	}
	_ = json.NewEncoder(w).Encode(api.Envelope[api.CloudProof]{
		Status: api.StatusOK, Body: api.CloudProof{Signature: key.Prove(in.Nonce, in.URL)},
	})
}

// ca returns the certificate of a TLS server as PEM.
func (c *fakeController) ca() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate().Raw}))
}

// world is a node of a cloud.
type world struct {
	*Controllers
	t      *testing.T
	key    cloudkey.Key
	dir    datadir.Dir
	client *nodeapi.Client
}

// join returns a node that uses a controller.
func join(t *testing.T, key cloudkey.Key, url string, others ...string) *world {
	t.Helper()
	dir, err := datadir.At(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	identity := datadir.Identity{
		NodeID: testNode, Credential: testCredential, ControllerURL: url,
		Cloud: datadir.Cloud{Key: key.Public(), ControllerURLs: others},
	}
	if err := dir.SetIdentity(identity); err != nil {
		t.Fatal(err)
	}
	return start(t, key, dir)
}

// start starts the agent of a node.
func start(t *testing.T, key cloudkey.Key, dir datadir.Dir) *world {
	t.Helper()
	identity, err := dir.Identity()
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(Options{DataDir: dir, Identity: identity, TLS: &tls.Config{MinVersion: tls.VersionTLS12}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.transport.CloseIdleConnections)
	client, err := nodeapi.New(c.BaseURL(), c, identity.Credential)
	if err != nil {
		t.Fatal(err)
	}
	return &world{Controllers: c, t: t, key: key, dir: dir, client: client}
}

func (w *world) poll() error {
	w.t.Helper()
	_, err := w.client.Poll(w.t.Context(), 0, api.PollRequest{NodeID: testNode})
	return err
}

// awaitPoll polls until a controller has answered.
func (w *world) awaitPoll(of *fakeController) {
	w.t.Helper()
	before := of.polls.Load()
	for limit := time.Now().Add(time.Minute); of.polls.Load() == before; time.Sleep(10 * time.Millisecond) {
		_ = w.poll()
		if time.Now().After(limit) {
			w.t.Fatal("the controller gets no poll")
		}
	}
}

func (w *world) announce(a cloudkey.Announcement) {
	w.HandleAnnouncement(&api.CloudAnnouncement{
		Key: w.key.Public(), URLs: a.URLs, CA: a.CA, Signature: w.key.Announce(a),
	})
}

func (w *world) stored() datadir.Identity {
	w.t.Helper()
	identity, err := w.dir.Identity()
	if err != nil {
		w.t.Fatal(err)
	}
	return identity
}

func newKey(t *testing.T) cloudkey.Key {
	t.Helper()
	key, err := cloudkey.New()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// TestFailover: the node uses another controller when one has ended or cannot serve, and begins with it after a
// restart.
func TestFailover(t *testing.T) {
	key := newKey(t)
	a, b := serve(t, key, false, nil), serve(t, key, false, nil)
	w := join(t, key, a.URL, a.URL, b.URL)
	if err := w.poll(); err != nil || a.polls.Load() != 1 {
		t.Fatalf("%v", err)
	}
	a.status.Store(http.StatusServiceUnavailable)
	w.awaitPoll(b)
	if got := w.stored().ControllerURL; got != b.URL {
		t.Errorf("stored %q, want %q", got, b.URL)
	}
	a.status.Store(0)
	w = start(t, key, w.dir)
	b.Close()
	w.awaitPoll(a)
}

// TestSingleController: a node with one controller stays with it, whatever that answers.
func TestSingleController(t *testing.T) {
	key := newKey(t)
	a := serve(t, key, false, nil)
	w := join(t, key, a.URL)
	a.status.Store(http.StatusServiceUnavailable)
	for range 3 {
		if err := w.poll(); farm.CodeOf(err) != farm.CodeUnavailable {
			t.Fatalf("%v", err)
		}
	}
	a.status.Store(0)
	if err := w.poll(); err != nil || w.stored().ControllerURL != a.URL {
		t.Errorf("%v", err)
	}
}

// TestUntrustedController gets no credential: neither one of another cloud, nor one that passes the request for the
// proof on to a controller of the cloud.
func TestUntrustedController(t *testing.T) {
	key := newKey(t)
	a := serve(t, key, false, nil)
	for name, untrusted := range map[string]*fakeController{
		"another cloud": serve(t, newKey(t), false, nil), "a relay": serve(t, key, false, a),
	} {
		w := join(t, key, a.URL, a.URL, untrusted.URL)
		a.status.Store(http.StatusServiceUnavailable)
		for range 3 {
			_ = w.poll()
			w.mu.Lock()
			w.searchNext = time.Time{}
			w.mu.Unlock()
		}
		if n := untrusted.polls.Load(); n != 0 || w.stored().ControllerURL != a.URL {
			t.Errorf("%s got %d polls; stored %q", name, n, w.stored().ControllerURL)
		}
		a.status.Store(0)
		if err := w.poll(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestAnnouncedAddress: the node moves to an announced address while the former one still works.
func TestAnnouncedAddress(t *testing.T) {
	key := newKey(t)
	a, b := serve(t, key, false, nil), serve(t, key, false, nil)
	w := join(t, key, a.URL)
	w.announce(cloudkey.Announcement{URLs: []string{b.URL}})
	if got := w.stored().Cloud.AnnouncedURLs; !slices.Equal(got, []string{b.URL}) {
		t.Errorf("stored %q", got)
	}
	w.awaitPoll(b)
	w.announce(cloudkey.Announcement{URLs: []string{b.URL, a.URL}})
	b.Close()
	w.awaitPoll(a)
}

// TestSwitchToHTTPS: the former address ends, and the announced one has a certificate of an announced authority.
func TestSwitchToHTTPS(t *testing.T) {
	key := newKey(t)
	plain, secure := serve(t, key, false, nil), serve(t, key, true, nil)
	w := join(t, key, plain.URL)
	w.announce(cloudkey.Announcement{URLs: []string{secure.URL}}) // without the authority it cannot be used
	if err := w.poll(); err != nil || secure.polls.Load() != 0 {
		t.Fatalf("%v, %d polls", err, secure.polls.Load())
	}
	w.announce(cloudkey.Announcement{URLs: []string{secure.URL}, CA: secure.ca()})
	plain.Close()
	w.awaitPoll(secure)
	if id := w.stored(); id.ControllerURL != secure.URL || id.Cloud.AnnouncedCA != secure.ca() {
		t.Errorf("stored %+v", id)
	}
	start(t, key, w.dir).awaitPoll(secure)
}

// TestAnnouncements: only those that are signed with the key that the node knows change anything.
func TestAnnouncements(t *testing.T) {
	key, other := newKey(t), newKey(t)
	a := serve(t, key, false, nil)
	good := cloudkey.Announcement{URLs: []string{"http://good.example:1"}}
	signed := func(by cloudkey.Key, a cloudkey.Announcement) *api.CloudAnnouncement {
		return &api.CloudAnnouncement{Key: by.Public(), URLs: a.URLs, CA: a.CA, Signature: by.Announce(a)}
	}
	forged := signed(key, good)
	forged.URLs = []string{"http://bad.example:1"}
	var many []string
	for i := range cloudkey.MaxURLs + 1 {
		many = append(many, fmt.Sprintf("http://a.example:%d", i+1))
	}
	long := "http://" + strings.Repeat("a", 600) + ":1"
	for name, bad := range map[string]*api.CloudAnnouncement{
		"another cloud":     signed(other, good),
		"a changed list":    forged,
		"too many":          signed(key, cloudkey.Announcement{URLs: many}),
		"no URL":            signed(key, cloudkey.Announcement{URLs: []string{"ftp://a"}}),
		"another form":      signed(key, cloudkey.Announcement{URLs: []string{"http://A.example:1"}}),
		"a long URL":        signed(key, cloudkey.Announcement{URLs: []string{long}}),
		"a damaged CA":      signed(key, cloudkey.Announcement{CA: "x"}),
		"an invalid key":    {Key: "x", Signature: key.Announce(cloudkey.Announcement{})},
		"without signature": {Key: key.Public(), URLs: good.URLs},
	} {
		w := join(t, key, a.URL)
		before := w.stored()
		w.HandleAnnouncement(bad)
		if after := w.stored(); len(after.Cloud.AnnouncedURLs) != 0 || after.Cloud.Key != before.Cloud.Key ||
			after.Cloud.AnnouncedCA != "" {
			t.Errorf("%s: stored %+v", name, after.Cloud)
		}
	}

	first, err := WithAnnouncement(datadir.Cloud{}, signed(other, good))
	if err != nil || first.Key != other.Public() || !slices.Equal(first.AnnouncedURLs, good.URLs) {
		t.Errorf("a node without a key: %+v, %v", first, err)
	}
	if same, err := WithAnnouncement(first, nil); err != nil || same.Key != first.Key {
		t.Errorf("an older controller: %+v, %v", same, err)
	}
}

// TestCheckAll: a controller that does not answer is reported, one of another cloud is an error.
func TestCheckAll(t *testing.T) {
	key := newKey(t)
	a, other := serve(t, key, false, nil), serve(t, newKey(t), false, nil)
	w := join(t, key, a.URL)
	const down = "http://127.0.0.1:1"
	for _, tt := range []struct {
		urls, unreachable []string
		err               string
	}{
		{[]string{a.URL}, nil, ""},
		{[]string{down, a.URL}, []string{down}, ""},
		{[]string{down}, []string{down}, ""},
		{[]string{a.URL, other.URL}, nil, "is not part of this node's cloud"},
	} {
		list, err := CheckAll(t.Context(), w.stored(), w.transport, tt.urls)
		var unreachable []string
		for _, u := range list {
			unreachable = append(unreachable, u.URL)
		}
		if !slices.Equal(unreachable, tt.unreachable) || (err == nil) != (tt.err == "") ||
			err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%q: %q, %v", tt.urls, unreachable, err)
		}
	}
}
