package agent

import (
	"context"
	"errors"
	"io"
	"net"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/nodeapi"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/hv"
)

// Consoles is the controller's receiver of screens.
type Consoles interface {
	OpenConsole(ctx context.Context, nodeID, session string) (*nodeapi.ConsoleConn, error)
}

var _ Consoles = (*nodeapi.Client)(nil)

// maxConsoles is the number of screens that are shown at a time. A controller asks for no more.
const maxConsoles = 64

// showConsoles opens the screens that the controller asks for. A request that arrived before is already
// being served.
func (a *Agent) showConsoles(ctx context.Context, calls []api.ConsoleRequest) {
	for _, call := range calls {
		a.mu.Lock()
		room := a.opts.Consoles != nil && len(a.consoleSessions) < maxConsoles && !a.consoleSessions[call.Session]
		if room {
			a.consoleSessions[call.Session] = true
		}
		a.mu.Unlock()
		if !room {
			continue
		}
		a.workers.Go(func() {
			defer func() {
				a.mu.Lock()
				defer a.mu.Unlock()
				delete(a.consoleSessions, call.Session)
			}()
			a.relayConsole(ctx, call)
		})
	}
}

// relayConsole relays a screen to the controller until one of them ends it.
func (a *Agent) relayConsole(ctx context.Context, call api.ConsoleRequest) {
	line, err := a.opts.Consoles.OpenConsole(ctx, a.opts.Identity.NodeID, call.Session)
	if err != nil {
		a.log.Warn("opening the console connection to the controller failed", "instance_id", call.InstanceID,
			"error", err)
		return
	}
	screen, err := a.openScreen(ctx, call)
	if err != nil {
		a.log.Warn("opening the console of a VM failed", "instance_id", call.InstanceID, "error", err)
		line.End(consoleRefusal(err))
		return
	}
	a.log.Info("console opened", "instance_id", call.InstanceID)
	defer screen.Close()
	defer context.AfterFunc(ctx, func() { _ = screen.Close() })()
	go func() {
		_, _ = io.Copy(screen, line)
		_ = screen.Close() // the viewer has left
	}()
	_, _ = io.Copy(line, screen)
	why := "Console ended: the VM was stopped or restarted"
	if ctx.Err() != nil {
		why = "The agent of the node stops"
	}
	line.End(why) // which ends the other copy, too
}

// openScreen connects to the screen of an instance's VM.
func (a *Agent) openScreen(ctx context.Context, call api.ConsoleRequest) (net.Conn, error) {
	in := a.instance(call.InstanceID)
	if in == nil || in.snapshot().Claim != call.Claim {
		return nil, farm.Refused("The instance is no longer on the node")
	}
	driver, ok := a.opts.Driver.(hv.ConsoleDriver)
	if !ok {
		return nil, farm.Refused("The hypervisor driver of the node does not support consoles")
	}
	return driver.Screen(ctx, in.id)
}

// consoleRefusal returns the text that tells a viewer why the screen is not available.
func consoleRefusal(err error) string {
	if e, ok := errors.AsType[*farm.Error](err); ok {
		return e.Message
	}
	if errors.Is(err, hv.ErrNotRunning) || errors.Is(err, hv.ErrNotFound) {
		return "The VM does not run"
	}
	return "The node cannot show the screen; its log says why"
}
