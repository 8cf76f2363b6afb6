package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/buildyard/buildyard/internal/loadgen"
	"github.com/buildyard/buildyard/test/rig"
)

// The versions of etcd, as scripts/need.sh builds them.
var (
	supportedVersions = []string{"v3.5.35", "v3.6.16", "v3.7.3"}
	oldVersion        = "3.4"
)

// versionCase is a case that needs no cloud.
type versionCase struct {
	name string
	run  func(ctx context.Context) (string, error)
}

func (s *suite) versionCases() (cases []versionCase) {
	for _, version := range supportedVersions {
		name := "etcd " + version
		cases = append(cases, versionCase{name, func(ctx context.Context) (string, error) {
			return s.useVersion(ctx, version)
		}})
	}
	return append(cases, versionCase{"etcd " + oldVersion + " is refused", s.refuseOldVersion})
}

// secureEtcd is an etcd with certificates and users.
type secureEtcd struct {
	*rig.Process
	endpoint string
	dir      string
	pki      *authority
	tools    string
}

// startSecure starts an etcd of a version, and adds the users of docs/high-availability.md: root, and
// buildyard with a role on its prefix.
func (s *suite) startSecure(ctx context.Context, version, dir string) (*secureEtcd, error) {
	pki, err := newAuthority(dir)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(pki.issueServer("127.0.0.1"), pki.issueClient("root"), pki.issueClient("buildyard"),
		pki.issueClient("visitor")); err != nil {
		return nil, err
	}
	address, err := rig.FreeAddr(ctx)
	if err != nil {
		return nil, err
	}
	peer, err := rig.FreeAddr(ctx)
	if err != nil {
		return nil, err
	}
	e := &secureEtcd{endpoint: "https://" + address, dir: dir, pki: pki, tools: s.tools}
	e.Process = rig.NewProcess(dir, "etcd", filepath.Join(s.tools, "etcd-"+version), "--name", "m1", "--data-dir",
		filepath.Join(dir, "etcd"), "--listen-client-urls", e.endpoint, "--advertise-client-urls", e.endpoint,
		"--listen-peer-urls", "http://"+peer, "--initial-advertise-peer-urls", "http://"+peer,
		"--initial-cluster", "m1=http://"+peer, "--cert-file", pki.cert("server"), "--key-file", pki.key("server"),
		"--trusted-ca-file", pki.ca(), "--client-cert-auth", "--auto-compaction-mode", "periodic",
		"--auto-compaction-retention", "5m", "--log-level", "warn")
	if err := e.Start(); err != nil {
		return nil, err
	}
	return e, e.addUsers(ctx)
}

// ctl runs etcdctl as root.
func (e *secureEtcd) ctl(ctx context.Context, args ...string) error {
	_, err := rig.Output(ctx, e.dir, filepath.Join(e.tools, "etcdctl"), append([]string{
		"--endpoints", e.endpoint, "--cacert", e.pki.ca(), "--cert", e.pki.cert("root"), "--key", e.pki.key("root"),
	}, args...)...)
	return err
}

func (e *secureEtcd) addUsers(ctx context.Context) error {
	var err error
	for deadline := time.Now().Add(caseTime); time.Now().Before(deadline); {
		if err = e.ctl(ctx, "endpoint", "health"); err == nil || !rig.Pause(ctx, 200*time.Millisecond) {
			break
		}
	}
	for _, args := range []string{
		"user add root --no-password", "user grant-role root root", "role add buildyard",
		"role grant-permission buildyard readwrite /buildyard/ --prefix=true", "user add buildyard:secret-of-etcd",
		"user grant-role buildyard buildyard", "user add visitor --no-password", "auth enable",
	} {
		if err == nil {
			err = e.ctl(ctx, strings.Fields(args)...)
		}
	}
	return err
}

// settings writes a settings file that uses the certificate of a user, and a password if there is one.
func (e *secureEtcd) settings(name, user, password string) (path string, err error) {
	lines := []string{
		"SVC_ETCD_ENDPOINTS=" + e.endpoint, "SVC_ETCD_CA_CERT=" + e.pki.ca(), "SVC_ETCD_CERT=" + e.pki.cert(user),
		"SVC_ETCD_KEY=" + e.pki.key(user),
	}
	if password != "" {
		file := filepath.Join(e.dir, name+".password")
		if err := os.WriteFile(file, []byte(password+"\n"), 0o600); err != nil {
			return "", err
		}
		lines = append(lines, "SVC_ETCD_USERNAME=buildyard", "SVC_ETCD_PASSWORD_FILE="+file)
	}
	path = filepath.Join(e.dir, name+".conf")
	return path, os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600)
}

// useVersion moves the records of a cloud to an etcd and back, as an operator does.
func (s *suite) useVersion(ctx context.Context, version string) (detail string, err error) {
	dir := filepath.Join(s.dir, "etcd-"+version)
	if err := rig.MakeDir(dir); err != nil {
		return "", err
	}
	e, err := s.startSecure(ctx, version, dir)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, e.End()) }()
	byCertificate, err := e.settings("certificate", "buildyard", "")
	if err != nil {
		return "", err
	}
	byPassword, err := e.settings("password", "visitor", "secret-of-etcd")
	if err != nil {
		return "", err
	}
	withoutRights, err := e.settings("visitor", "visitor", "")
	if err != nil {
		return "", err
	}
	m := mover{suite: s, dir: dir, certificate: byCertificate, password: byPassword, visitor: withoutRights}
	return "moved there and back, backed up, restored", m.run(ctx)
}

// mover is the steps of an operator.
type mover struct {
	*suite
	dir                            string
	certificate, password, visitor string // settings files
	ids                            []string
}

func (m *mover) dataDir() string { return filepath.Join(m.dir, "controller") }

// store runs a command of buildyard.
func (m *mover) buildyard(ctx context.Context, args ...string) (string, error) {
	return rig.Output(ctx, "", m.Path("buildyard"), args...)
}

// refused runs a command that has to fail with a text.
func (m *mover) refused(ctx context.Context, want string, args ...string) error {
	out, err := m.buildyard(ctx, args...)
	if err == nil || !strings.Contains(err.Error()+out, want) {
		return fmt.Errorf("%s: got %q and %w, want a refusal with %q", strings.Join(args, " "), out, err, want)
	}
	return nil
}

func (m *mover) run(ctx context.Context) error {
	file := filepath.Join(m.dir, "cloud.backup")
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"fill the embedded store", func() error { return m.serve(ctx, "", true) }},
		{"refuse a user without rights", func() error {
			return m.refused(ctx, "checks failed: connection", "store", "check", "--config", m.visitor)
		}},
		{"migrate to etcd", m.command(ctx, "store", "migrate", "--to", "etcd", "--data-dir", m.dataDir(), "--config",
			m.certificate)},
		{"refuse the embedded store", func() error {
			return m.refused(ctx, "were moved to", "up", "--data-dir", m.dataDir(), "--listen-addr", "127.0.0.1:0")
		}},
		{"check by certificate", m.command(ctx, "store", "check", "--config", m.certificate)},
		{"check by password", m.command(ctx, "store", "check", "--config", m.password)},
		{"serve by certificate", func() error { return m.serve(ctx, m.certificate, false) }},
		{"serve by password", func() error { return m.serve(ctx, m.password, false) }},
		{"back up", m.command(ctx, "store", "backup", file, "--controller-config", m.certificate)},
		{"refuse to overwrite", func() error {
			return m.refused(ctx, "already has records", "store", "restore", file, "--data-dir", m.dataDir(),
				"--config", m.certificate)
		}},
		{"restore", m.command(ctx, "store", "restore", file, "--force", "--data-dir", m.dataDir(), "--config",
			m.certificate)},
		{"serve what was restored", func() error { return m.serve(ctx, m.certificate, false) }},
		{"migrate back", m.command(ctx, "store", "migrate", "--to", "embedded", "--data-dir", m.dataDir(), "--config",
			m.certificate)},
		{"serve the embedded store", func() error { return m.serve(ctx, "", false) }},
	} {
		if err := step.do(); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return nil
}

// command returns a step that runs a command.
func (m *mover) command(ctx context.Context, args ...string) func() error {
	return func() error {
		_, err := m.buildyard(ctx, args...)
		return err
	}
}

// waiting is the number of instances that wait for a node, as records that have to be there in the end.
const waiting = 150

// serve runs a controller, makes the records or compares them with those that were made, and ends it.
func (m *mover) serve(ctx context.Context, settings string, fill bool) (err error) {
	c, err := rig.NewCloud(ctx, m.Programs, m.dir)
	if err != nil {
		return err
	}
	if settings != "" {
		c.With("--config", settings)
	}
	if err := c.Boot(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.End()) }()
	client := loadgen.NewClient(c.Controller, 1)
	defer client.Close()
	if fill {
		return m.fill(ctx, c, client)
	}
	return m.compare(ctx, client)
}

// fill makes instances that wait: the cloud has no node.
func (m *mover) fill(ctx context.Context, c *rig.Cloud, client *loadgen.Client) error {
	template, err := c.Push(ctx, "tiny", "create", "--name", "tiny", "--disk-size", "16M", "--cpu", "1",
		"--ram", "256M")
	if err != nil {
		return err
	}
	rc := rig.NewClient(c.Controller)
	order := map[string]any{"vmid": template, "count": waiting}
	if err := rc.Send(ctx, "POST", "/api/v1/vm", order, &m.ids); err != nil {
		return err
	}
	slices.Sort(m.ids)
	return m.compare(ctx, client)
}

func (m *mover) compare(ctx context.Context, client *loadgen.Client) error {
	items, err := client.List(ctx)
	if err != nil {
		return err
	}
	var ids []string
	for _, item := range items {
		ids = append(ids, item.InstanceID)
	}
	slices.Sort(ids)
	if !slices.Equal(ids, m.ids) {
		return fmt.Errorf("%d instances are listed, %d were created", len(ids), len(m.ids))
	}
	return nil
}

// refuseOldVersion: an etcd that is too old is refused with its version and the supported ones.
func (s *suite) refuseOldVersion(ctx context.Context) (detail string, err error) {
	dir := filepath.Join(s.dir, "etcd-"+oldVersion)
	if err := rig.MakeDir(dir); err != nil {
		return "", err
	}
	address, err := rig.FreeAddr(ctx)
	if err != nil {
		return "", err
	}
	peer, err := rig.FreeAddr(ctx)
	if err != nil {
		return "", err
	}
	endpoint := "http://" + address
	old := rig.NewProcess(dir, "etcd", filepath.Join(s.tools, "etcd-"+oldVersion),
		"--data-dir", filepath.Join(dir, "etcd"), "--listen-client-urls", endpoint,
		"--advertise-client-urls", endpoint, "--listen-peer-urls", "http://"+peer,
		"--initial-advertise-peer-urls", "http://"+peer, "--initial-cluster", "default=http://"+peer)
	if err := old.Start(); err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, old.End()) }()
	if err := awaitAnswer(ctx, endpoint+"/health", 200); err != nil {
		return "", err
	}
	m := mover{suite: s, dir: dir}
	return "refused with a sentence", errors.Join(
		m.refused(ctx, "checks failed: connection", "store", "check", "--etcd-endpoints", endpoint),
		m.refused(ctx, "want 3.5.3 to 3.7", "controller", "--etcd-endpoints", endpoint, "--data-dir", m.dataDir(),
			"--registry", "http://127.0.0.1:1", "--listen-addr", "127.0.0.1:0"))
}
