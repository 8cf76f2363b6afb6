package authstore

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/store"
	"github.com/buildyard/buildyard/internal/store/etcd"
	"github.com/buildyard/buildyard/internal/store/mem"
)

// cluster is a backend that replicas share, with separate records.
type cluster struct {
	backend store.Backend
	prefix  string
}

var clusters atomic.Int64

func newCluster(b store.Backend) *cluster {
	return &cluster{b, fmt.Sprintf("/cluster%d", clusters.Add(1))}
}

// oneEtcd is an embedded etcd for all tests of this process.
var oneEtcd = sync.OnceValues(func() (*etcd.Backend, error) {
	dir, err := os.MkdirTemp("", "authstore")
	if err != nil {
		return nil, err
	}
	ends = append(ends, func() { _ = os.RemoveAll(dir) })
	b, err := etcd.StartEmbedded(ctxOfMain, etcd.EmbeddedOptions{Dir: dir})
	if err == nil {
		ends = append(ends, func() { _ = b.Close() })
	}
	return b, err
})

// onEach runs a test on each backend.
func onEach(t *testing.T, test func(t *testing.T, c *cluster)) {
	t.Run("mem", func(t *testing.T) { test(t, newCluster(mem.New())) })
	t.Run("etcd", func(t *testing.T) {
		b, err := oneEtcd()
		must(t, err)
		test(t, newCluster(b))
	})
}

// replica is one process of a cluster.
type replica struct {
	*Stores
	st   *store.Store
	keys *auth.APIKeys
	tap  *auth.TAP
	who  *auth.Sessions
}

func (c *cluster) open(t testing.TB) *replica {
	t.Helper()
	r, err := c.tryOpen(t, slog.New(slog.NewTextHandler(t.Output(), nil)))
	must(t, err)
	return r
}

// tryOpen opens the tables and the stores over them.
func (c *cluster) tryOpen(t testing.TB, log *slog.Logger) (*replica, error) {
	t.Helper()
	tables := NewTables()
	st, err := store.Open(t.Context(), c.backend, store.Options{Prefix: c.prefix, Tables: tables.All(), Logger: log})
	must(t, err)
	t.Cleanup(func() { _ = st.Close() })
	s, err := Open(t.Context(), st, tables, log)
	if err != nil {
		return nil, errors.Join(err, st.Close())
	}
	return newReplica(s, st), nil
}

func newReplica(s *Stores, st *store.Store) *replica {
	r := &replica{Stores: s, st: st, keys: auth.NewAPIKeys(s.Keys())}
	r.who = auth.NewSessions(r.keys, s.Signer(), 0)
	r.tap = auth.NewTAP(r.who, s.Nonces())
	return r
}

// caughtUp returns when a replica shows what any other has stored.
func (r *replica) caughtUp(t testing.TB) *replica {
	t.Helper()
	must(t, r.st.Barrier(t.Context()))
	must(t, r.st.WaitDelivered(t.Context()))
	return r
}

// pair is the client's.
var pair = sync.OnceValue(func() *rsa.PrivateKey {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return key
})

func (r *replica) add(t testing.TB, id string, groups ...string) {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(&pair().PublicKey)
	must(t, err)
	_, err = r.keys.Create(t.Context(),
		auth.NewAPIKey{ID: id, TTL: 3600, Groups: groups, PublicKey: base64.StdEncoding.EncodeToString(der)})
	must(t, err)
}

// hand returns a secret as the client has decrypted it.
func (r *replica) hand(t testing.TB, id string) string {
	t.Helper()
	text, err := r.tap.Hand(id)
	must(t, err)
	raw, err := base64.StdEncoding.DecodeString(text)
	must(t, err)
	plain, err := rsa.DecryptOAEP(sha256.New(), nil, pair(), raw, nil)
	must(t, err)
	return string(plain)
}

func (r *replica) shake(t testing.TB, id, secret string) (api.Session, error) {
	t.Helper()
	a, err := r.tap.Shake(t.Context(), api.ShakeRequest{ID: id, Secret: secret}, "192.0.2.1")
	return a.Data, err
}

func (r *replica) session(t testing.TB, id string) api.Session {
	t.Helper()
	s, err := r.shake(t, id, r.hand(t, id))
	must(t, err)
	return s
}

// verify shows a session.
func (r *replica) verify(t testing.TB, s api.Session) error {
	t.Helper()
	raw, err := json.Marshal(s)
	must(t, err)
	_, err = r.who.Verify(base64.StdEncoding.EncodeToString(raw))
	return err
}

// records returns what the backend holds of a cluster.
func (c *cluster) records(t testing.TB) map[string]string {
	t.Helper()
	out := map[string]string{}
	_, err := c.backend.List(t.Context(), c.prefix+"/v1/", func(kvs []store.KV) error {
		for _, kv := range kvs {
			out[kv.Key[len(c.prefix+"/v1/"):]] = string(kv.Value)
		}
		return nil
	})
	must(t, err)
	return out
}

// write puts something into the backend past every store.
func (c *cluster) write(t testing.TB, key, value string) {
	t.Helper()
	_, err := c.backend.Commit(t.Context(),
		store.Txn{Puts: []store.KV{{Key: c.prefix + "/v1/" + key, Value: []byte(value)}}})
	must(t, err)
}

func (c *cluster) remove(t testing.TB, keys ...string) {
	t.Helper()
	for _, key := range keys {
		_, err := c.backend.Commit(t.Context(), store.Txn{Deletes: []string{c.prefix + "/v1/" + key}})
		must(t, err)
	}
}

// soon is a time until which marks count.
func soon() time.Time { return time.Now().Add(4 * time.Minute) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
