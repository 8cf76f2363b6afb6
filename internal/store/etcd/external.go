package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/buildyard/buildyard/internal/store"
)

const (
	dialTimeout = 5 * time.Second
	// Connections are pinged while a call waits only: etcd closes those that are pinged while they are idle.
	keepAliveTime    = 10 * time.Second // the shortest time that gRPC permits
	keepAliveTimeout = 3 * time.Second

	connectAttempts = 3 // a member that does not answer may be asked first
)

// ExternalOptions configures the connection to an etcd cluster.
type ExternalOptions struct {
	Endpoints []string     // one or more client URLs of the cluster
	TLS       *tls.Config  // nil: plain connections
	Username  string       // of an etcd user; empty: the name in the client certificate, if etcd has authentication
	Password  string       // of that user
	Prefix    string       // the key prefix that the user may read and write; empty: store.DefaultPrefix
	TempDir   string       // for backups that are being made; empty: the system's
	Logger    *slog.Logger // warnings and errors of the client; nil: silent
}

// externalCluster is the connections to a cluster.
type externalCluster struct {
	opts     ExternalOptions
	kv       *clientv3.Client
	watcher  *clientv3.Client // separate, so that large responses do not delay watches
	trackers []*connTracker   // of both
	prober   *memberProber
}

// ConnectExternal connects to an etcd cluster that the operator runs. It fails when the cluster does
// not answer, when a member has an unsupported version, and when the user may not read and write
// the prefix.
func ConnectExternal(ctx context.Context, opts ExternalOptions) (*Backend, error) {
	if len(opts.Endpoints) == 0 {
		return nil, errors.New("no etcd endpoints given")
	}
	if opts.Prefix == "" {
		opts.Prefix = store.DefaultPrefix
	}
	cluster, err := dialCluster(ctx, opts)
	if err != nil {
		return nil, err
	}

	b := newBackend(cluster.kv, cluster.watcher, opts.Prefix, opts.Logger)
	b.closeResources = cluster.close
	b.memberAddrs, b.txnTimeout, b.tempDir = opts.Endpoints, clusterTxnTimeout, opts.TempDir
	b.isExternal = true
	b.defragMember = func(ctx context.Context, member string) error {
		_, err := cluster.kv.Defragment(ctx, member)
		return err
	}
	monitor := newMemberMonitor(opts.Endpoints, cluster.prober.probe, cluster.use, cluster.drop, opts.Logger)
	b.maintenance.Go(func() { monitor.run(b.ctx) })
	if err := b.checkCluster(ctx, opts); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	b.maintenance.Go(func() { b.maintainer.run(b.ctx, remoteCheckInterval) })
	b.maintenance.Go(func() { b.maintainer.compactShared(b.ctx, compactPeriod) })
	return b, nil
}

// dialCluster opens the connections. A wrong password fails here.
func dialCluster(ctx context.Context, opts ExternalOptions) (*externalCluster, error) {
	c := &externalCluster{opts: opts}
	for _, client := range []**clientv3.Client{&c.kv, &c.watcher} {
		tracker := &connTracker{}
		opened, err := connectAgain(ctx, opts, tracker)
		if err != nil {
			return nil, errors.Join(err, c.close())
		}
		*client = opened
		c.trackers = append(c.trackers, tracker)
	}
	c.prober = newMemberProber(func(endpoint string) (*clientv3.Client, error) {
		single := opts
		single.Endpoints = []string{endpoint}
		return connect(single, &connTracker{})
	})
	return c, nil
}

// connectAgain is connect, which logs in at one of the members: it tries others as well.
func connectAgain(ctx context.Context, opts ExternalOptions, tracker *connTracker) (*clientv3.Client, error) {
	var last error
	for range connectAttempts {
		client, err := connect(opts, tracker)
		if err == nil || ctx.Err() != nil || isRefusedLogin(err) {
			return client, err
		}
		last = err
	}
	return nil, last
}

func connect(opts ExternalOptions, tracker *connTracker) (*clientv3.Client, error) {
	client, err := clientv3.New(clientv3.Config{
		Endpoints:            opts.Endpoints,
		TLS:                  opts.TLS,
		Username:             opts.Username,
		Password:             opts.Password,
		DialTimeout:          dialTimeout,
		DialKeepAliveTime:    keepAliveTime,
		DialKeepAliveTimeout: keepAliveTimeout,
		DialOptions:          []grpc.DialOption{grpc.WithContextDialer(tracker.dial)},
		Logger:               zapLogger(opts.Logger),
	})
	switch {
	case err == nil:
		return client, nil
	case isRefusedLogin(err):
		return nil, fmt.Errorf("etcd refused user %q: %w; check the user name and the password", opts.Username, err)
	}
	return nil, fmt.Errorf("connect to etcd at %s: %w", strings.Join(opts.Endpoints, ", "), err)
}

// isRefusedLogin reports whether etcd does not know the user or its password.
func isRefusedLogin(err error) bool { return errors.Is(err, rpctypes.ErrAuthFailed) }

// use directs new calls to some of the members.
func (c *externalCluster) use(endpoints []string) {
	c.kv.SetEndpoints(endpoints...)
	c.watcher.SetEndpoints(endpoints...)
}

// drop ends the calls at a member.
func (c *externalCluster) drop(endpoint string) {
	for _, tracker := range c.trackers {
		tracker.drop(endpoint)
	}
}

func (c *externalCluster) close() error {
	var errs []error
	for _, client := range []*clientv3.Client{c.kv, c.watcher} {
		if client != nil {
			errs = append(errs, client.Close())
		}
	}
	if c.prober != nil {
		errs = append(errs, c.prober.close())
	}
	return errors.Join(errs...)
}

// checkCluster checks the members' versions, that the cluster answers, and the rights of the user.
func (b *Backend) checkCluster(ctx context.Context, opts ExternalOptions) error {
	if err := b.checkVersions(ctx, opts.Logger); err != nil {
		return err
	}
	var err error
	for range connectAttempts {
		if err = b.checkAccess(ctx); err == nil || ctx.Err() != nil || isDenied(err) {
			break
		}
	}
	if err != nil && !isDenied(err) {
		err = fmt.Errorf("reach etcd at %s: %w", strings.Join(opts.Endpoints, ", "), err)
	}
	return err
}

// checkAccess fails when the user may not read and write the keys below the prefix. etcd checks the
// rights of a transaction before its condition, which never holds here: nothing is written.
func (b *Backend) checkAccess(ctx context.Context) error {
	ctx, cancel := b.callContext(ctx, callTimeout)
	defer cancel()
	dir := b.prefix + "/"
	never := clientv3.Compare(clientv3.CreateRevision(b.probeKey()), "=", math.MaxInt64)
	_, err := b.client.Txn(ctx).If(never).Then(
		clientv3.OpPut(b.probeKey(), ""),
		clientv3.OpGet(dir, clientv3.WithPrefix(), clientv3.WithCountOnly()),
	).Commit()
	switch {
	case err == nil:
		return nil
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		return fmt.Errorf("etcd does not permit this user to read and write the keys below %s: "+
			"grant its role that with \"etcdctl role grant-permission ROLE readwrite %s --prefix\": %w", dir, dir, err)
	case errors.Is(err, rpctypes.ErrUserEmpty):
		return fmt.Errorf("etcd requires a user: set a user name and password, or a client certificate: %w", err)
	}
	return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
}

// isDenied reports whether etcd refused a call for lack of rights.
func isDenied(err error) bool {
	return errors.Is(err, rpctypes.ErrPermissionDenied) || errors.Is(err, rpctypes.ErrUserEmpty)
}

// checkVersions fails when a member that answers has an unsupported version. Members that do not
// answer are checked by a later start.
func (b *Backend) checkVersions(ctx context.Context, log *slog.Logger) error {
	errs := make([]error, len(b.memberAddrs))
	var members sync.WaitGroup
	for i, member := range b.memberAddrs {
		members.Go(func() {
			status, err := b.memberStatus(ctx, member)
			if err != nil {
				return // the monitor logs it
			}
			errs[i] = checkVersion(member, status.version)
			if errs[i] == nil && isNewerVersion(status.version) && log != nil {
				log.Warn("etcd has a newer version than this program was tested with", "endpoint", member,
					"version", status.version, "tested", newestVersion)
			}
		})
	}
	members.Wait()
	return errors.Join(errs...)
}
