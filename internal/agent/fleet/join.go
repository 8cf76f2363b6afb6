package fleet

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/datadir"
	"github.com/buildyard/buildyard/internal/agent/nodeapi"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/hv/sim"
	"github.com/buildyard/buildyard/internal/retry"
)

// progressInterval is how often the number of joined nodes is logged.
const progressInterval = 5 * time.Second

// joinAll joins the nodes, several concurrently, and logs the progress.
func (o *Options) joinAll(ctx context.Context, nodes []*node, transport http.RoundTripper) error {
	var joined atomic.Int64
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		ticker := time.NewTicker(progressInterval)
		defer ticker.Stop()
		for {
			select {
			case <-ended:
				return
			case <-ticker.C:
				o.Logger.InfoContext(ctx, "simulated nodes joining", "joined", joined.Load(), "nodes", o.NodeCount)
			}
		}
	}()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(maxConcurrentJoins)
	for i := range nodes {
		if ctx.Err() != nil {
			break
		}
		group.Go(func() (err error) {
			if nodes[i], err = o.newNode(ctx, i, transport); err == nil {
				joined.Add(1)
			}
			return err
		})
	}
	return group.Wait()
}

// The delays between two attempts to join. They are drawn for each node, so that all nodes do not call an unavailable
// controller simultaneously.
const (
	retryFirst = 200 * time.Millisecond
	retryMost  = 5 * time.Second
)

// retryJoin calls join until the controller is available.
func (o *Options) retryJoin(ctx context.Context, join func() error) error {
	pause := retry.New(retryFirst, retryMost)
	for {
		err := join()
		if code := farm.CodeOf(err); code != farm.CodeUnavailable && code != farm.CodeBusy {
			return err
		}
		o.Logger.WarnContext(ctx, "controller cannot be reached; a simulated node retries the join", "error", err)
		if err := pause.Sleep(ctx); err != nil {
			return err
		}
	}
}

// join returns the identity of a node: with a data directory, the earlier one.
func (o *Options) join(
	ctx context.Context, name string, at datadir.Dir, transport http.RoundTripper,
) (datadir.Identity, error) {
	id := datadir.Identity{}
	if o.DataDir != "" {
		known, err := at.Identity()
		if err != nil && farm.CodeOf(err) != farm.CodeNotFound {
			return id, err
		}
		id = known
	}
	client, err := nodeapi.New(o.ControllerURL, transport, "")
	if err != nil {
		return id, err
	}
	if o.AuthorizeJoin != nil {
		client = client.WithAuthorization(o.AuthorizeJoin)
	}
	var answer api.JoinAnswer
	err = o.retryJoin(ctx, func() error {
		answer, err = client.Join(ctx, api.JoinRequest{
			Protocol: api.LinkProtocol, Token: o.JoinToken, NodeID: id.NodeID, Credential: id.Credential,
			Name: name, Host: "127.0.0.1", Groups: o.Groups, Capacity: o.Capacity,
			Arch: cmp.Or(o.Sim.Arch, sim.DefaultArch),
			Kept: o.keptFields(id),
		})
		return err
	})
	if err != nil {
		return id, err
	}
	id = datadir.Identity{
		NodeID: answer.NodeID, Credential: answer.Credential, RegistryAddress: answer.Registry,
		ControllerURL: o.ControllerURL, Name: name, Host: "127.0.0.1", Groups: o.Groups, Capacity: o.Capacity,
	}
	if o.DataDir == "" {
		return id, nil
	}
	return id, at.SetIdentity(id)
}

// keptFields names the fields that a node with a data directory keeps when it joins again: its restart
// must not undo what an operator has configured.
func (o *Options) keptFields(id datadir.Identity) []string {
	if id.NodeID == "" {
		return nil
	}
	kept := []string{api.KeptName, api.KeptHost}
	if slices.Equal(o.Groups, id.Groups) {
		kept = append(kept, api.KeptGroups)
	}
	if o.Capacity == id.Capacity {
		kept = append(kept, api.KeptCapacity)
	}
	return kept
}
