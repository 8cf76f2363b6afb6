package etcd

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/buildyard/buildyard/internal/auth/certs/certstest"
	"github.com/buildyard/buildyard/internal/store"
	"github.com/buildyard/buildyard/internal/store/backup"
	"github.com/buildyard/buildyard/internal/store/etcd/clienttls"
)

// secureCluster is a member with TLS, client certificates, and authentication. Its users are root;
// buildyard with password "right" and the rights on /buildyard/; and stranger without any.
type secureCluster struct {
	endpoint  string
	ca        string
	authority *certstest.Authority
	dir       string // of certificates
}

// writePair writes a certificate and its key into a directory of that name.
func writePair(t *testing.T, dir, name string, pair certstest.Pair) (cert, key string) {
	t.Helper()
	sub := filepath.Join(dir, name)
	if err := os.MkdirAll(sub, 0o700); err != nil {
		t.Fatal(err)
	}
	return pair.Files(t, sub)
}

func serveSecure(t *testing.T) *secureCluster {
	t.Helper()
	c := &secureCluster{dir: t.TempDir(), authority: certstest.New(t, "etcd")}
	c.ca = filepath.Join(c.dir, "ca.pem")
	certstest.Write(t, c.ca, c.authority.CertPEM())
	cert, key := writePair(t, c.dir, "server", c.authority.Server(t, "127.0.0.1"))
	address := freeURL(t)
	address.Scheme = "https"
	c.endpoint = address.String()
	cfg := memberConfig(EmbeddedOptions{Logger: testLogger(t)}, t.TempDir())
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{address}, []url.URL{address}
	cfg.BcryptCost = 4 // the lowest: with the race detector a busy machine needs longer for 10 than a call may take
	cfg.ClientTLSInfo = transport.TLSInfo{CertFile: cert, KeyFile: key, TrustedCAFile: c.ca, ClientCertAuth: true}
	member, err := startEtcd(cfg, newMemberFailure())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(member.Close)
	if err := awaitReady(t.Context(), member, newMemberFailure()); err != nil {
		t.Fatal(err)
	}
	c.addUsers(t)
	return c
}

// options connect with the certificate of a name.
func (c *secureCluster) options(t *testing.T, name string) ExternalOptions {
	t.Helper()
	cert, key := writePair(t, c.dir, name, c.authority.Client(t, name))
	endpoints := []string{c.endpoint}
	cfg, err := clienttls.Files{CA: c.ca, Cert: cert, Key: key}.TLS(endpoints)
	if err != nil {
		t.Fatal(err)
	}
	return ExternalOptions{Endpoints: endpoints, TLS: cfg, TempDir: t.TempDir(), Logger: testLogger(t)}
}

func (c *secureCluster) addUsers(t *testing.T) {
	t.Helper()
	client, err := connect(c.options(t, "root"), &connTracker{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	ctx := t.Context()
	do := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for user, password := range map[string]string{"root": "top", "buildyard": "right", "stranger": "right"} {
		do(client.UserAdd(ctx, user, password))
	}
	do(client.RoleAdd(ctx, "buildyard"))
	do(client.RoleGrantPermission(ctx, "buildyard", "/buildyard/", clientv3.GetPrefixRangeEnd("/buildyard/"),
		clientv3.PermissionType(clientv3.PermReadWrite)))
	do(client.UserGrantRole(ctx, "buildyard", "buildyard"))
	do(client.UserGrantRole(ctx, "root", "root"))
	do(client.AuthEnable(ctx))
}

// TestRoleOnThePrefix: a user with the rights on the prefix alone can do everything that a store needs,
// by certificate and by password; maintenance is refused with a sentence and breaks nothing.
func TestRoleOnThePrefix(t *testing.T) {
	c := serveSecure(t)
	byPassword := c.options(t, "stranger")
	byPassword.Username, byPassword.Password = "buildyard", "right"
	for name, opts := range map[string]ExternalOptions{
		"certificate": c.options(t, "buildyard"), "password": byPassword,
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			opts.Logger = slog.New(slog.NewTextHandler(&log, nil))
			b, err := ConnectExternal(t.Context(), opts)
			if err != nil {
				t.Fatal(err)
			}
			useStore(t, b)
			checkNoMaintenance(t, b)
			if err := b.Close(); err != nil {
				t.Error(err)
			}
			if strings.Contains(log.String(), "right\"") {
				t.Errorf("the password is in the log: %s", &log)
			}
		})
	}
}

// useStore does what a controller does: it opens a store, campaigns, writes and follows.
func useStore(t *testing.T, b *Backend) {
	t.Helper()
	ctx := t.Context()
	s, err := store.Open(ctx, b, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	lease, err := s.Campaign(ctx, "leader")
	if err != nil {
		t.Fatal(err)
	}
	fence := lease.Fence()
	if _, err := b.Commit(ctx, store.Txn{
		Fence: &fence, Puts: []store.KV{{Key: "/buildyard/v1/i/1", Value: []byte(`{}`)}},
	}); err != nil {
		t.Error(err)
	}
	if err := s.Healthy(); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// checkNoMaintenance: what root alone may do is not done, and is not an error.
func checkNoMaintenance(t *testing.T, b *Backend) {
	t.Helper()
	ctx := t.Context()
	if may, err := b.MayMaintain(ctx); may || err != nil {
		t.Errorf("may maintain: %t, %v", may, err)
	}
	if err := b.maintainer.compact(ctx); !errors.Is(err, errDeniedCall) {
		t.Errorf("compact: %v", err)
	}
	if err := b.maintainer.defrag(ctx, b.memberAddrs[0]); err != nil {
		t.Errorf("defragment: %v", err)
	}
	if err := b.maintainer.recoverFull(ctx); err != nil {
		t.Errorf("recover: %v", err)
	}
}

// TestSnapshotOfThePrefix: a backup needs no rights beyond the prefix, has the records with their
// revisions, nothing that a lease holds, and can be restored.
func TestSnapshotOfThePrefix(t *testing.T) {
	b, err := ConnectExternal(t.Context(), serveSecure(t).options(t, "buildyard"))
	if err != nil {
		t.Fatal(err)
	}
	useStore(t, b)
	lease, err := b.Campaign(t.Context(), "/buildyard/lease/leader")
	if err != nil {
		t.Fatal(err)
	}
	var puts []store.KV
	for i := range 100 {
		puts = append(puts, store.KV{
			Key: "/buildyard/v1/h/" + strings.Repeat("x", i+1), Value: bytes.Repeat([]byte("r"), 900),
		})
	}
	if _, err := b.Commit(t.Context(), store.Txn{Puts: puts}); err != nil {
		t.Fatal(err)
	}
	want := contents(t, b)
	file := filepath.Join(t.TempDir(), "cloud.backup")
	stream, size, err := b.Snapshot(t.Context())
	if err != nil || size <= 0 {
		t.Fatal(size, err)
	}
	if _, err := backup.WriteFile(file, stream, backup.KeepExisting); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(stream.Close(), lease.Resign(t.Context()), b.Close()); err != nil {
		t.Error(err)
	}

	opened, err := OpenBackup(t.Context(), file, t.TempDir(), testLogger(t))
	if err != nil {
		t.Fatal(err)
	}
	got := contents(t, opened)
	if len(got) != len(want) {
		t.Errorf("%d records in the backup, want %d", len(got), len(want))
	}
	for key, kv := range want {
		if have := got[key]; !bytes.Equal(have.Value, kv.Value) || have.ModRev != kv.ModRev {
			t.Errorf("%s: %d bytes of revision %d, want %d of %d", key, len(have.Value), have.ModRev, len(kv.Value),
				kv.ModRev)
		}
	}
	if err := opened.Close(); err != nil {
		t.Error(err)
	}
	done, err := Restore(t.Context(), RestoreOptions{BackupFile: file, Dir: t.TempDir()})
	if err != nil || done.FirstRevision < revisionBump {
		t.Errorf("restore: %+v, %v", done, err)
	}
}

// contents returns the records below the prefix.
func contents(t *testing.T, b *Backend) map[string]store.KV {
	t.Helper()
	all := map[string]store.KV{}
	if _, err := b.List(t.Context(), "/buildyard/v1/", func(page []store.KV) error {
		for _, kv := range page {
			all[kv.Key] = kv
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

// TestRefusedByEtcd: each reason for a refusal has a sentence.
func TestRefusedByEtcd(t *testing.T) {
	c := serveSecure(t)
	noCertificate := c.options(t, "buildyard")
	noCertificate.TLS = noCertificate.TLS.Clone()
	noCertificate.TLS.GetClientCertificate = nil
	otherAuthority := c.options(t, "buildyard")
	otherAuthority.TLS = otherAuthority.TLS.Clone()
	otherAuthority.TLS.RootCAs = certstest.Pool(certstest.New(t, "other"))
	wrongPassword := c.options(t, "stranger")
	wrongPassword.Username, wrongPassword.Password = "buildyard", "wrong-secret"
	plain := ExternalOptions{Endpoints: []string{"http" + strings.TrimPrefix(c.endpoint, "https")}}
	for name, tc := range map[string]struct {
		opts ExternalOptions
		says string
	}{
		"no rights":          {c.options(t, "stranger"), "readwrite /buildyard/ --prefix"},
		"unknown name":       {c.options(t, "nobody"), "etcd"},
		"wrong password":     {wrongPassword, "check the user name and the password"},
		"no certificate":     {noCertificate, "reach etcd at " + c.endpoint},
		"unknown authority":  {otherAuthority, "reach etcd at " + c.endpoint},
		"without encryption": {plain, "reach etcd at http://"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ConnectExternal(t.Context(), tc.opts)
			if err == nil || !strings.Contains(err.Error(), tc.says) || strings.Contains(err.Error(), "wrong-secret") {
				t.Errorf("got %v, want %q", err, tc.says)
			}
		})
	}
}

// TestSnapshotThatFails leaves no temporary file.
func TestSnapshotThatFails(t *testing.T) {
	b, err := ConnectExternal(t.Context(), ExternalOptions{Endpoints: []string{serve(t)}, TempDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := b.Snapshot(ctx); err == nil {
		t.Error("a canceled backup succeeded")
	}
	stream, _, err := b.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if left, err := filepath.Glob(filepath.Join(b.tempDir, "*")); err != nil || len(left) > 0 {
		t.Errorf("a killed process would leave %q, %v", left, err)
	}
	if n, err := io.Copy(io.Discard, stream); n == 0 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	if err := errors.Join(stream.Close(), b.Close()); err != nil {
		t.Error(err)
	}
}
