package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/buildyard/buildyard/internal/store"
)

const (
	dialTimeout      = 5 * time.Second
	keepAliveTime    = 5 * time.Second
	keepAliveTimeout = 3 * time.Second
)

// ExternalOptions configures the connection to an etcd cluster.
type ExternalOptions struct {
	Endpoints []string     // one or more client URLs of the cluster
	TLS       *tls.Config  // nil: plain connections
	Prefix    string       // the key prefix the client's role may read; empty: store.DefaultPrefix
	Logger    *slog.Logger // warnings and errors of the client; nil: silent
}

// ConnectExternal connects to an etcd cluster that the operator runs and fails when it does not answer.
// Watches use a separate connection.
func ConnectExternal(ctx context.Context, opts ExternalOptions) (*Backend, error) {
	if len(opts.Endpoints) == 0 {
		return nil, errors.New("no etcd endpoints given")
	}
	kv, err := connect(opts)
	if err != nil {
		return nil, err
	}
	watcher, err := connect(opts)
	if err != nil {
		return nil, errors.Join(err, kv.Close())
	}
	probe := opts.Prefix
	if probe == "" {
		probe = store.DefaultPrefix
	}
	b := newBackend(kv, watcher, probe, opts.Logger)
	b.closeResources = func() error { return errors.Join(kv.Close(), watcher.Close()) }
	b.memberAddrs, b.txnTimeout = opts.Endpoints, clusterTxnTimeout
	b.defragMember = func(ctx context.Context, member string) error {
		_, err := kv.Defragment(ctx, member)
		return err
	}
	if _, err := b.Barrier(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("reach etcd at %s: %w", strings.Join(opts.Endpoints, ", "), err), b.Close())
	}
	b.maintenance.Go(func() { b.maintainer.run(b.ctx, remoteCheckInterval) })
	b.maintenance.Go(func() { b.maintainer.compactShared(b.ctx, compactPeriod) })
	return b, nil
}

func connect(opts ExternalOptions) (*clientv3.Client, error) {
	client, err := clientv3.New(clientv3.Config{
		Endpoints:            opts.Endpoints,
		TLS:                  opts.TLS,
		DialTimeout:          dialTimeout,
		DialKeepAliveTime:    keepAliveTime,
		DialKeepAliveTimeout: keepAliveTimeout,
		PermitWithoutStream:  true,
		Logger:               zapLogger(opts.Logger),
	})
	if err != nil {
		return nil, fmt.Errorf("etcd client: %w", err)
	}
	return client, nil
}
