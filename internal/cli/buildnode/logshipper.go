package buildnode

import (
	"context"
	"os"
	"sync"

	"github.com/buildyard/buildyard/internal/agent"
	"github.com/buildyard/buildyard/internal/agent/cache"
	"github.com/buildyard/buildyard/internal/agent/controllers"
	"github.com/buildyard/buildyard/internal/agent/datadir"
	"github.com/buildyard/buildyard/internal/agent/nodeapi"
	"github.com/buildyard/buildyard/internal/logs"
	"github.com/buildyard/buildyard/internal/transfer"
)

// newShipper returns the shipper that sends this node's log once its controller enables that.
func newShipper(identity datadir.Identity, followed *controllers.Controllers) (*logs.Shipper, error) {
	machine, err := os.Hostname()
	if err != nil {
		machine = identity.Name
	}
	controller, err := nodeapi.New(followed.BaseURL(), followed, identity.Credential)
	if err != nil {
		return nil, err
	}
	// A separate credential source: it works before the agent exists, and must not log its refusals.
	trust := followed.Trust()
	source := cache.NewRegistry(transfer.Options{TLS: trust.Config(), DialTLS: trust.DialTLS, MaxAttempts: 1},
		newTokenSource(identity, controller, nil))
	return logs.New(logs.Options{MachineName: machine, MachineAddress: joinHost(identity), Send: source.SendLogRows}),
		nil
}

// centralLog converts a nil pointer to a nil interface.
func centralLog(s *logs.Shipper) agent.CentralLog {
	if s == nil {
		return nil
	}
	return s
}

// startShipping sends lines until stop is called, which sends the last ones.
func startShipping(ctx context.Context, s *logs.Shipper) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var work sync.WaitGroup
	work.Go(func() { s.Run(ctx) })
	return func() {
		cancel()
		work.Wait()
	}
}
