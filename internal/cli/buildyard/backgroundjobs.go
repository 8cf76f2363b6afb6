package buildyard

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/buildyard/buildyard/internal/config"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/periodic"
	"github.com/buildyard/buildyard/internal/rest"
)

// tierCheckInterval is the interval between checks of the license tier.
const tierCheckInterval = 2 * time.Second

// applyTier applies the license tier to the authorizer, and stores once that permissions are enforced, so
// that they stay enforced after a restart.
func (a *access) applyTier(ctx context.Context) error {
	if tier := a.opts.Tier(); tier != a.tier {
		a.authorizer.SetTier(tier)
		a.tier, a.enforcementStored = tier, false
	}
	if a.enforcementStored {
		return nil
	}
	if err := a.authorizer.StoreEnforcement(ctx); err != nil {
		return err
	}
	a.enforcementStored = true
	return nil
}

// backgroundJobs returns the background jobs that every replica runs.
func (a *access) backgroundJobs() []periodic.Job {
	return append([]periodic.Job{{What: "license tier", Every: tierCheckInterval, Do: a.applyTier}}, a.opts.Jobs...)
}

// openAuditTrail opens the audit trail to the event log, if there is one.
func (s *ControllerService) openAuditTrail() {
	if s.settings.Bool(config.EventLogging) || s.settings.String(config.EventLogURL) != "" {
		s.auditTrail = rest.NewAuditTrail(func(ctx context.Context, events []farm.Event) error {
			return s.controller.Events.Append(ctx, events...)
		}, s.log)
	}
}

// auditFlushTimeout bounds the last write of a trail.
const auditFlushTimeout = 5 * time.Second

// flushAuditTrail writes the remaining events of a trail when its service ends.
func flushAuditTrail(ctx context.Context, t *rest.AuditTrail, log *slog.Logger) {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), auditFlushTimeout)
	defer cancel()
	if err := t.Flush(ctx); err != nil {
		log.WarnContext(ctx, "audit events not written to the event log", "error", err)
	}
}

// auditor returns the auditor of a service; nil when audited actions go only to its log.
func auditor(t *rest.AuditTrail, s farm.Service) rest.Auditor {
	if t == nil {
		return nil
	}
	return t.AuditorFor(s)
}

// openAuditTrail is that of a registry that runs alone: it writes to the event log directly.
func (s *RegistryService) openAuditTrail() error {
	if !s.settings.Bool(config.EventLogging) {
		return nil
	}
	machine, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("read the host name: %w", err)
	}
	s.auditTrail = rest.NewAuditTrail(func(_ context.Context, events []farm.Event) error {
		rows := make([][]byte, len(events))
		for i, e := range events {
			row, err := e.EncodeRecord(machine)
			if err != nil {
				return err
			}
			rows[i] = row
		}
		return s.registry.Logs().AppendEvents(rows)
	}, s.log)
	return nil
}

// run runs the background jobs of a registry that runs alone, until ctx ends.
func (k *registryStores) run(ctx context.Context, log *slog.Logger) {
	if k == nil {
		return
	}
	var work sync.WaitGroup
	work.Go(func() { periodic.Run(ctx, k.authDir.Jobs(k.keys, k.signer), log) })
	work.Go(func() { k.license.Run(ctx) })
	work.Wait()
}
