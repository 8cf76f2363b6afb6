package buildnode

import (
	"log/slog"
	"net/http"

	"github.com/buildyard/buildyard/internal/agent/controllers"
	"github.com/buildyard/buildyard/internal/agent/datadir"
	"github.com/buildyard/buildyard/internal/agent/nodeapi"
	"github.com/buildyard/buildyard/internal/clienttls"
)

// openControllers returns the controllers of the node's cloud, one of which its requests are sent to.
func openControllers(
	at datadir.Dir, identity datadir.Identity, log *slog.Logger,
) (*controllers.Controllers, error) {
	config, err := clienttls.Config(clienttls.Options(identity.TLS))
	if err != nil {
		return nil, err
	}
	return controllers.New(controllers.Options{DataDir: at, Identity: identity, TLS: config, Logger: log})
}

// controllersOf returns the controllers of a running agent, which all of its parts share.
func (o *NodeOptions) controllersOf(identity datadir.Identity) (*controllers.Controllers, error) {
	if o.controllers != nil {
		return o.controllers, nil
	}
	return openControllers(o.DataDir, identity, o.Logger)
}

// controllerTransport returns connections of a command to controllers.
func controllerTransport(identity datadir.Identity) (http.RoundTripper, error) {
	config, err := clienttls.Config(clienttls.Options(identity.TLS))
	if err != nil {
		return nil, err
	}
	return nodeapi.NewTransport(controllers.NewTrust(config, identity.Cloud.AnnouncedCA).Config(), 1), nil
}

// controllerClient returns a client for the controller that the node uses.
func controllerClient(identity datadir.Identity) (*nodeapi.Client, error) {
	transport, err := controllerTransport(identity)
	if err != nil {
		return nil, err
	}
	return nodeapi.New(identity.ControllerURL, transport, identity.Credential)
}
