package controller

import (
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/buildyard/buildyard/internal/controller/admission"
	"github.com/buildyard/buildyard/internal/controller/placement"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// MaxCount is how many instances one request may start.
const MaxCount = 1000

// StartRequest requests Count instances of one version of a template. The caller has checked types
// and ranges.
type StartRequest struct {
	TemplateID string
	Tag        string
	Version    *int
	Count      int
	Name       string
	ExternalID string
	Metadata   map[string]any
	GroupID    string
	Owner      string
	Group      string // permission group of the request; "" where rights on single nodes are not in use
	Options    farm.StartOptions
	Caller     string        // whose limits it counts against; "": the totals alone count
	TTL        time.Duration // after which each instance is terminated; 0: never
}

// Start creates the instances and returns their ids once they are durable. It fails as a whole:
// when a part cannot be written, the other parts are removed again.
func (c *Controller) Start(ctx context.Context, req StartRequest) ([]string, error) {
	checked := checkedStart{StartRequest: req}
	for _, check := range startChecks {
		if err := check.run(ctx, c, &checked); err != nil {
			return nil, err
		}
	}
	script := c.payloads.SeparateScript(&req.Options, req.Caller)
	instances := make([]*farm.Instance, req.Count)
	for i := range instances {
		instances[i] = c.newInstance(req, checked.ref)
		instances[i].Message = checked.note
	}
	for attempt := range claimAttempts {
		ids, err := c.create(ctx, req, slices.Clone(instances), script, attempt < claimAttempts-1)
		if !errors.Is(err, placement.ErrStandbyTaken) {
			return ids, err
		}
		for _, inst := range instances { // nothing was written
			inst.MAC, inst.MissedPool = "", ""
		}
		if err := c.db.UpToDate(ctx); err != nil {
			return nil, farm.Unavailable(err, "The store cannot be reached; try again")
		}
	}
	return nil, placement.ErrStandbyTaken // unreachable: the last attempt claims none
}

// claimAttempts is how often a start is written whose standbys other requests have taken. The last attempt claims none.
const claimAttempts = 3

// create writes the instances of a start and returns their ids. With claim, standbys of a pool become some of them.
func (c *Controller) create(
	ctx context.Context, req StartRequest, instances []*farm.Instance, script []store.Change, claim bool,
) ([]string, error) {
	var standbys map[string]placement.Standby
	if claim {
		var end func()
		standbys, end = c.Pools.Claim(instances)
		defer end()
	}
	ids := make([]string, len(instances))
	for i, inst := range instances {
		ids[i] = inst.ID
	}
	m, err := c.Idempotency.Prepare(ctx, ids)
	if err != nil {
		return nil, err
	}
	release := c.MACs.Assign(instances)
	defer release()
	creation := placement.Creation{
		Instances: instances, Script: script, Standbys: standbys,
		Admit: func(pending []*farm.Instance) (func(), error) {
			return c.admission.Admit(req.Caller, demandOf(pending, script))
		},
	}
	if m != nil {
		creation.Key = m
	}
	return ids, c.placer.Create(ctx, creation)
}

// demandOf returns what pending instances and their script count against the limits of a caller.
func demandOf(pending []*farm.Instance, script []store.Change) (more admission.Amounts) {
	for _, inst := range pending {
		more[admission.Instances]++
		more[admission.InstancesSize] += int64(record.InstanceSize(inst))
	}
	for _, change := range script {
		if s, ok := change.Value().(*record.Script); ok {
			more[admission.ScriptsSize] += int64(s.Size)
		}
	}
	return more
}

func (c *Controller) newInstance(req StartRequest, ref farm.TemplateRef) *farm.Instance {
	now := c.now()
	inst := &farm.Instance{
		ID: record.NewID(), Name: req.Name, ExternalID: req.ExternalID, Metadata: maps.Clone(req.Metadata),
		State: farm.Scheduling, Template: ref, Options: req.Options,
		GroupID: req.GroupID, PermissionGroup: req.Group, Caller: req.Caller, Owner: owner(req),
		Registry: c.opts.RegistryAddress,
		Created:  now, Updated: now,
	}
	inst.SetTTL(req.TTL, now)
	return inst
}

// owner returns the owner of a request, for fairness: the caller's key, else the host part of the
// external id (CI plugins put the address of the job there), else root.
func owner(req StartRequest) string {
	if req.Owner != "" {
		return req.Owner
	}
	rest := req.ExternalID
	if _, after, ok := strings.Cut(rest, "://"); ok {
		rest = after
	}
	host, _, _ := strings.Cut(rest, "/")
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	if host == "" {
		return "root"
	}
	return host
}
