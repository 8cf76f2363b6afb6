package buildyard

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"

	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/config"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/rest"
	"github.com/buildyard/buildyard/internal/rest/controllerrest"
)

// nodePort is a separate interface for nodes: it has only the node routes of the controller.
type nodePort struct {
	portTLS  *portTLS
	listener *listener
	log      *slog.Logger
}

// checkNodePort rejects settings of the interface that would be ignored or misunderstood.
func checkNodePort(v *config.Values) error {
	for _, rule := range []struct {
		given bool
		key   string
		needs string
		there bool
	}{
		{v.Bool(config.UseQueueTLS), config.UseQueueTLS, config.QueueAddr, v.String(config.QueueAddr) != ""},
		{v.String(config.QueueServerCert) != "", config.QueueServerCert, config.UseQueueTLS +
			"=true", v.Bool(config.UseQueueTLS)},
		{v.String(config.QueueServerKey) != "", config.QueueServerKey, config.UseQueueTLS +
			"=true", v.Bool(config.UseQueueTLS)},
		{v.String(config.QueueCACert) != "", config.QueueCACert, config.UseQueueTLS +
			"=true", v.Bool(config.UseQueueTLS)},
		{v.List(config.QueueCRL) != nil, config.QueueCRL, config.QueueCACert, v.String(config.QueueCACert) != ""},
	} {
		if rule.given && !rule.there {
			return fmt.Errorf("%s requires %s", rule.key, rule.needs)
		}
	}
	return nil
}

// openNodePort binds the interface in the settings; nil without one.
func openNodePort(ctx context.Context, v *config.Values, log *slog.Logger) (*nodePort, error) {
	addr := v.String(config.QueueAddr)
	if addr == "" {
		return nil, nil // there is none
	}
	edge, err := openPortTLS(queueEdge, v, log)
	if err != nil {
		return nil, err
	}
	l, err := listen(ctx, "the node interface", addr, log)
	if err != nil {
		return nil, err
	}
	l.enableTLS(edge)
	l.enableProtection(v, log)
	return &nodePort{edge, l, log}, nil
}

// handler serves the interface's routes.
func (p *nodePort) handler(o controllerrest.Options, a *access) (h http.Handler, err error) {
	if o.Guard, err = p.guard(a); err != nil {
		return nil, err
	}
	return controllerrest.NodeHandler(o), nil
}

// run serves the interface until ctx ends.
func (p *nodePort) run(ctx context.Context, handler http.Handler, v *config.Values) error {
	p.log.InfoContext(ctx, "node interface started", "address", p.listener.url())
	if !v.Bool(config.QueueAuth) {
		p.log.WarnContext(ctx, "node authentication is off; every reachable machine can join", "setting",
			config.QueueAuth+"=false")
	}
	var work sync.WaitGroup
	defer work.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	work.Go(func() { p.portTLS.run(ctx) })
	return p.listener.serve(rest.WithJoinPolicy(ctx, p.joinPolicy(v)), handler, v.Duration(config.GracefulShutdown))
}

// guard returns the guard of the interface: it authenticates callers that the controller knows, and
// machines by certificates of the interface's own authorities. It is nil without both.
func (p *nodePort) guard(a *access) (*rest.Guard, error) {
	who := &auth.Authenticator{}
	authorizer := auth.NewAuthorizer(auth.Policy{Service: farm.ServiceController},
		auth.NewGrantTable(auth.Grants{}, nil))
	switch {
	case a != nil:
		who.Root, who.Sessions, authorizer = a.authenticator.Root, a.authenticator.Sessions, a.authorizer
	case p.portTLS.clients == nil:
		return nil, nil // every caller is allowed
	}
	if p.portTLS.clients != nil {
		who.Certificate = p.portTLS.clients.Identity
	}
	o := rest.GuardOptions{Identifier: who, Authorizer: authorizer, Logger: p.log}
	if a != nil {
		o.Auditor, o.GuessLimiter = a.opts.Auditor, &a.guessLimiter
	}
	return rest.NewGuard(o)
}

// joinPolicy returns the conditions for joining there.
func (p *nodePort) joinPolicy(v *config.Values) rest.JoinPolicy {
	switch {
	case !v.Bool(config.QueueAuth):
		return rest.JoinOpen
	case p.portTLS.clients != nil:
		return rest.JoinByCertificate
	}
	return rest.DoorGuarded
}

func (p *nodePort) close() {
	if p != nil {
		_ = p.listener.close()
	}
}
