package buildnode

import (
	"context"
	"log/slog"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/home"
	"github.com/buildyard/buildyard/internal/agent/link"
	"github.com/buildyard/buildyard/internal/agent/pass"
)

// newPass makes what shows a node to the registry of its cloud. A nil log: nothing is said.
func newPass(id home.Identity, controller *link.Client, log *slog.Logger) *pass.Holder {
	return pass.New(pass.Options{
		Ask:    func(ctx context.Context) (api.PassAnswer, error) { return controller.Pass(ctx, id.NodeID) },
		Own:    ownKeyOf(id),
		Logger: log,
	})
}
