package controller

import (
	"context"
	"slices"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/adoption"
	"github.com/buildyard/buildyard/internal/controller/agentupdate"
	"github.com/buildyard/buildyard/internal/controller/alarms"
	"github.com/buildyard/buildyard/internal/controller/cachejobs"
	"github.com/buildyard/buildyard/internal/controller/console"
	"github.com/buildyard/buildyard/internal/controller/events"
	"github.com/buildyard/buildyard/internal/controller/findings"
	"github.com/buildyard/buildyard/internal/controller/idempotency"
	"github.com/buildyard/buildyard/internal/controller/instances"
	"github.com/buildyard/buildyard/internal/controller/instancestatus"
	"github.com/buildyard/buildyard/internal/controller/jointokens"
	"github.com/buildyard/buildyard/internal/controller/macpool"
	"github.com/buildyard/buildyard/internal/controller/nodelink"
	"github.com/buildyard/buildyard/internal/controller/nodes"
	"github.com/buildyard/buildyard/internal/controller/outages"
	"github.com/buildyard/buildyard/internal/controller/placement"
	"github.com/buildyard/buildyard/internal/controller/pools"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/controller/saves"
	"github.com/buildyard/buildyard/internal/controller/templates"
	"github.com/buildyard/buildyard/internal/controller/usage"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// Each function below returns what one part needs of the settings and of other parts. A part that is
// created later is called through a function.

var (
	_ console.Nodes    = (*nodelink.Sessions)(nil)
	_ nodes.Link       = (*nodelink.Link)(nil)
	_ nodes.Tokens     = (*jointokens.Tokens)(nil)
	_ nodes.Sessions   = (*nodelink.Sessions)(nil)
	_ macpool.Orphans  = (*nodelink.Orphans)(nil)
	_ adoption.Orphans = (*nodelink.Orphans)(nil)
	_ templates.Events = (*events.Log)(nil)
)

func instanceOptions(c *Controller) instances.Options {
	return instances.Options{
		Events: c.Events, CheckSize: c.admission.CheckInstanceSize,
		EndSave: func(ctx context.Context, w store.Writer, request string, inst *farm.Instance) error {
			return c.Saves.End(ctx, w, request, inst)
		},
		WaitReasons: func(list []*farm.Instance) []string { return c.placer.WaitReasons(list) },
		ClaimDevice: func(inst *farm.Instance, o *farm.RestartOptions) (store.Change, error) {
			return c.placer.ClaimDevice(inst, o)
		},
	}
}

func idempotencyOptions(c *Controller) idempotency.Options {
	return idempotency.Options{
		MaxKeys: c.opts.Limits.IdempotencyKeys, MaxBytes: c.opts.maxAnswerBytes, Terminate: c.Instances.Discard,
	}
}

func placementOptions(c *Controller) placement.Options {
	return placement.Options{
		Scheduler: c.opts.Scheduler, Permits: c.opts.Permits, Blocker: blocker{c}, Others: blocker{c}.Usage,
		Settled: c.started.Add(c.opts.NodeTimeout), AssignMAC: c.assignMAC,
		Terminate: c.Instances.Discard, TerminateClaimed: c.Instances.DiscardClaimed, Stopped: c.stopped,
	}
}

func usageOptions(c *Controller) usage.Options {
	return usage.Options{
		Started: c.started,
		NodeLoad: func(n *farm.Node) (cpu, ram float64, ok bool) {
			load, contact := c.Link.Usage(n)
			reported := load.CPU > 0 || load.RAM > 0 // a host that runs uses some memory
			return load.CPU, load.RAM, reported && c.now().Sub(contact) <= nodelink.ContactGap
		},
	}
}

// assignMAC returns the change that assigns its address to an instance; none when it has none.
func (c *Controller) assignMAC(inst *farm.Instance) []store.Change {
	return macpool.Take(c.tables, inst)
}

// release returns the changes that free what an instance has besides its record.
func (c *Controller) release(inst *farm.Instance) []store.Change {
	return append(macpool.Free(c.tables, inst), c.payloads.DeleteScript(inst)...)
}

func linkOptions(c *Controller) nodelink.Options {
	o := c.opts
	return nodelink.Options{
		RegistryAddress: o.RegistryAddress, VMNamePrefix: o.VMNamePrefix, CentralLog: o.CentralLog,
		NodeTimeout: o.NodeTimeout, StartTimeout: o.StartTimeout, OrderResend: o.OrderResend,
		OrphanReports: o.UnknownReports, OrphanAge: o.UnknownAge, DistributePulls: o.DistributePulls,
		Settled: c.started.Add(o.NodeTimeout),
		Instances: instancestatus.NewWriter(c.db,
			instancestatus.Options{Archive: c.History.Archive, StoreOutput: c.payloads.StoreOutput}),
		Script: c.payloads.Script, Placer: c.placer, Maintenance: c.Maintenance, Pulls: c.Usage,
		IsLeader: c.isLeader.Load, RetryMACs: func() { c.MACs.Retry() },
		PackageFor:   c.Updates.PackageFor,
		CountResults: func(written []store.Change) { c.CacheJobs.CountResults(written) },
		UpdateKeys:   o.Packages.Keys,
		Announcement: func() *api.CloudAnnouncement { return c.Cloud.Announcement() },
	}
}

func updateOptions(c *Controller) agentupdate.Options {
	return agentupdate.Options{
		Automatic:   !c.opts.NoNodeUpgrades,
		LastContact: func(node string) time.Time { return c.Link.LastContact(node) },
		ResolveGroups: func(ctx context.Context, names []string) ([]string, error) {
			ids, _, err := c.Groups.Named(ctx, names)
			return ids, err
		},
	}
}

func adoptionOptions(c *Controller) adoption.Options {
	return adoption.Options{
		Registry: c.opts.RegistryAddress, Orphans: c.Link.Orphans, Signal: c.Link.Sessions.Signal,
		Apply: instancestatus.Apply, FindMAC: c.MACs.Adoptable, AssignMAC: c.assignMAC,
	}
}

func templateOptions(c *Controller) templates.Options {
	return templates.Options{
		Registry: c.opts.Registry, Rights: c.opts.Rights, Events: c.Events, IsLeader: c.isLeader.Load,
		Removed: c.Findings.Remove,
	}
}

func findingsOptions(c *Controller) findings.Options {
	return findings.Options{
		WithEvent: c.Events.With,
		Template: func(ctx context.Context, id string) (api.TemplateDetail, error) {
			return c.opts.Registry.TemplateDetail(ctx, id)
		},
	}
}

func saveOptions(c *Controller) saves.Options {
	return saves.Options{
		Registry: c.opts.PushRegistry, Max: saves.DefaultMax,
		Instances: c.Instances, Templates: c.Templates, Contents: c.payloads,
		Admit: c.admission.AdmitSave, Response: c.Idempotency.Changes, From: c.Maintenance.After,
		StopFallback: c.opts.SaveStopFallback,
		Surplus:      func() func(*farm.SaveRequest) bool { return c.admission.SaveSurplus().Removes },
	}
}

func nodeOptions(c *Controller) nodes.Options {
	return nodes.Options{
		RegistryAddress: c.opts.RegistryAddress, UpdateKeys: c.opts.Packages.Keys, Tokens: c.JoinTokens,
		Announcement: c.Cloud.Announcement,
		Link:         c.Link, Sessions: c.Link.Sessions, Orphans: c.Link.Orphans.Load, Devices: c.placer.Devices,
		OrphanedVMs:   c.Link.Orphans.On,
		PeerReports:   c.Peers.Reported,
		ResolveGroups: c.Groups.Named, WithEvent: c.Events.With,
		FailInstance: func(ctx context.Context, id string) error {
			return c.Instances.Modify(ctx, c.store, id, func(inst *farm.Instance) (*farm.Instance, error) {
				return inst.AfterNodeRemoved(c.now()), nil
			})
		},
	}
}

func cacheJobOptions(c *Controller) cachejobs.Options {
	return cachejobs.Options{
		RegistryAddress: c.opts.RegistryAddress, Version: c.Templates.PullVersion,
		Guest: c.Templates.Guest, Template: c.Templates.Get,
		Group: c.Groups.Get, Changes: c.Idempotency.Changes,
		Progress: c.Link.CacheJobProgress, Pulling: c.Link.Sessions.Pulling, After: c.Maintenance.After,
	}
}

func poolOptions(c *Controller) pools.Options {
	return pools.Options{
		Resolve: func(ctx context.Context, template, tag string) (farm.TemplateRef, error) {
			ref, _, err := c.Templates.Resolve(ctx, template, tag, nil)
			return ref, err
		},
		Group: c.Groups.Get, Changes: c.Idempotency.Changes, Placer: c.placer,
		NewInstance: func(p *farm.Pool, ref farm.TemplateRef) *farm.Instance {
			now := c.now()
			return &farm.Instance{
				ID: record.NewID(), State: farm.Scheduling, Template: ref, GroupID: p.GroupID, Pool: p.ID,
				Options: farm.StartOptions{Priority: farm.MaxPriority}, Registry: c.opts.RegistryAddress,
				Created: now, Updated: now,
			}
		},
		AssignMACs: c.MACs.Assign, Paused: c.Maintenance.On,
	}
}

// newAlarms returns the alarms of all parts.
func newAlarms(c *Controller) *alarms.Alarms {
	disks := alarms.NewDisks(c.db, c.opts.Registry, c.opts.DiskAlarm)
	queue := alarms.NewQueue(func() (int, time.Duration) {
		now := c.Usage.Now()
		return now.Queue, now.Oldest
	}, func() []alarms.NodelessGroup { return alarms.NodelessGroups(c.db.Tables) })
	sources := slices.Concat([]alarms.Source{
		c.Link.Orphans.Alarms,
		alarms.FromMessage(api.AlarmPackages, c.opts.Packages.Problem, "Look at the directory of the agent packages."),
		alarms.FromMessage(api.AlarmLicense, c.License.Alarm, "Install a license that is valid (SVC_LICENSE_FILE)."),
		c.Events.Alarms, disks.Alarms, c.Link.Sessions.ClockAlarms,
		queue.Alarms, c.Outages.Alarms,
	}, c.opts.Alarms)
	return alarms.New(c.db, alarms.Options{Disks: disks, Queue: queue, Sources: sources, WithEvent: c.Events.With})
}

func outageOptions(c *Controller) outages.Options {
	return outages.Options{
		NodeTimeout: c.opts.NodeTimeout, InstanceTimeout: c.opts.InstanceTimeout,
		LastContact: func(node string) time.Time { return c.Link.LastContact(node) },
		Paused:      c.Maintenance.On, Since: c.Maintenance.After,
	}
}
