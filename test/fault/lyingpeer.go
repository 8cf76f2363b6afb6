package fault

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/peers"
	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/cloudkey"
	"github.com/buildyard/buildyard/internal/transfer"
)

// peerLies is the fault that another node claims to have all of a version, and sends other bytes.
const peerLies = "peer lies"

// lyingPeer is a node that claims to have all of every version, and sends zeros.
type lyingPeer struct {
	key        cloudkey.Key // of the cloud
	own        *peers.Identity
	reader     *peers.Identity
	readerFile string // of the reader's identity
	listener   net.Listener
	count      func(fault string)
	stop       func() error
}

var _ peers.Provider = (*lyingPeer)(nil)

// newLyingPeer starts one. count is called for each response with wrong bytes.
func newLyingPeer(ctx context.Context, dir string, count func(fault string)) (p *lyingPeer, err error) {
	p = &lyingPeer{readerFile: filepath.Join(dir, "reader.pem"), count: count}
	if p.key, err = cloudkey.New(); err != nil {
		return nil, err
	}
	if p.own, err = peers.LoadIdentity(filepath.Join(dir, "liar.pem")); err != nil {
		return nil, err
	}
	if p.reader, err = peers.LoadIdentity(p.readerFile); err != nil {
		return nil, err
	}
	if p.listener, err = new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0"); err != nil {
		return nil, err
	}
	server := peers.NewServer(peers.ServerOptions{
		Identity: p.own, Provider: p, CloudKey: p.key.Public, Logger: slog.New(slog.DiscardHandler),
	})
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	served := make(chan error, 1)
	go func() { served <- server.Serve(life, p.listener) }()
	p.stop = func() error {
		end()
		return <-served
	}
	return p, nil
}

// sources returns the peer, as the controller names it to the reader.
func (p *lyingPeer) sources(contentID string) []api.Peer {
	permit := cloudkey.PeerPermit{ContentID: contentID, Reader: p.reader.Key(), Server: p.own.Key()}
	return []api.Peer{{
		NodeID: "liar", Address: p.listener.Addr().String(), Key: p.own.Key(),
		Token: p.key.SignPeerToken(permit, time.Now().Add(cloudkey.PeerTokenLife)),
	}}
}

// Holding implements peers.Provider.
func (p *lyingPeer) Holding(context.Context, string) (transfer.Holding, bool) {
	return transfer.Holding{Complete: true}, true
}

// OpenRuns implements peers.Provider.
func (p *lyingPeer) OpenRuns(_ context.Context, _, _ string, runs []blob.Run) (io.ReadCloser, error) {
	var size int64
	for _, r := range runs {
		size += r.Len
	}
	p.count(peerLies)
	return io.NopCloser(bytes.NewReader(make([]byte, size))), nil
}

// GuestsWait implements peers.Provider.
func (p *lyingPeer) GuestsWait() bool { return false }
