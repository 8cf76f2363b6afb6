package instances

import (
	"context"
	"errors"

	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// Restart requests a forced stop and a new start of an instance's VM from its node.
func (s *Instances) Restart(ctx context.Context, id string, o farm.RestartOptions) error {
	inst, err := s.Latest(ctx, id)
	if err != nil {
		return err
	}
	if err := inst.CheckTask(farm.Restart); err != nil {
		return err
	}
	task := &farm.NodeTask{ID: record.NewID(), Kind: farm.TaskRestart, Restart: &o}
	if o.USBDevice == nil {
		return s.BeginTask(ctx, id, farm.Restart, task)
	}
	for attempt := range record.TxnAttempts {
		if attempt > 0 {
			if err := s.db.UpToDate(ctx); err != nil {
				return err
			}
		}
		claim, err := s.o.ClaimDevice(inst, task.Restart)
		if err != nil {
			return err
		}
		if err = s.BeginTask(ctx, id, farm.Restart, task, claim); !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
	return store.ErrConflict
}
