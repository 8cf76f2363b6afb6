package buildnode

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/datadir"
	"github.com/buildyard/buildyard/internal/agent/nodeapi"
	"github.com/buildyard/buildyard/internal/agent/proxy"
	"github.com/buildyard/buildyard/internal/agent/registrytoken"
	"github.com/buildyard/buildyard/internal/clienttls"
)

// newTokenSource returns the source of the node's credentials for the registry of its cloud. With a nil
// log, nothing is logged.
func newTokenSource(id datadir.Identity, controller *nodeapi.Client, log *slog.Logger) *registrytoken.Source {
	return registrytoken.New(registrytoken.Options{
		RequestToken: func(ctx context.Context, purpose api.TokenPurpose) (api.RegistryTokenResponse, error) {
			return controller.RegistryToken(ctx, id.NodeID, purpose)
		},
		NodeKey: nodeKeyOf(id),
		Logger:  log,
	})
}

// openProxy opens the socket through which the owner of a node reaches the registry of its cloud, with
// the API key that the node joined with. Without such a key the node has no proxy, since registry tokens
// are valid for ordered work only.
func (n *Node) openProxy(ctx context.Context, at datadir.Dir, id datadir.Identity) error {
	own := nodeKeyOf(id)
	if own == nil {
		return nil
	}
	config, err := clienttls.Config(clienttls.Options(id.TLS))
	if err != nil {
		return err
	}
	n.proxy, err = proxy.Listen(ctx, proxy.Options{
		SocketDir: at.SocketDir(), RegistryAddress: n.agent.Registry, Credentials: own, RegistryTLS: config,
		Logger: n.log,
	})
	if err == nil {
		n.closeLater(n.proxy)
	}
	return err
}

func (n *Node) serveProxy(ctx context.Context) {
	if n.proxy == nil {
		return
	}
	if err := n.proxy.Run(ctx); err != nil {
		n.log.ErrorContext(ctx, "registry proxy stopped", "error", err)
	}
}

// aboutTime is the timeout of a query to the agent's proxy.
const aboutTime = 2 * time.Second

func askProxy(ctx context.Context, at datadir.Dir) (proxy.Info, error) {
	ctx, cancel := context.WithTimeout(ctx, aboutTime)
	defer cancel()
	return proxy.GetInfo(ctx, at.SocketDir())
}

// isThroughProxy reports whether the agent of a data directory accepts requests for the registry at an
// address, with the API key that the node joined with.
func isThroughProxy(ctx context.Context, at datadir.Dir, address string) bool {
	about, err := askProxy(ctx, at)
	return err == nil && about.HasCredentials && about.RegistryAddress != "" &&
		sameAddress(about.RegistryAddress, address)
}

// sameAddress reports whether two addresses are of the same registry.
func sameAddress(a, b string) bool {
	return strings.TrimRight(a, "/") == strings.TrimRight(strings.TrimSpace(b), "/")
}
