package registry

import (
	"context"
	"errors"
	"sync"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

// storageJob is the job that an operator requested. One runs at a time, and the newest one is remembered.
type storageJob struct {
	mu     sync.Mutex // guards the fields below
	last   api.StorageJob
	cancel context.CancelCauseFunc // ends the one that runs
	done   chan struct{}           // closed when it has ended
}

var errJobCanceled = errors.New("canceled before it was finished")

// StartStorageJob starts a check, a repair or a garbage collection in the background.
func (r *Registry) StartStorageJob(req api.StorageJobRequest) (api.StorageJob, error) {
	do, ok := storageJobKinds[req.Do]
	if !ok {
		return api.StorageJob{}, farm.Invalid("do", "must be %s, %s or %s", api.StorageJobCheck, api.StorageJobRepair,
			api.StorageJobGC)
	}
	if req.Rate < 0 {
		return api.StorageJob{}, farm.Invalid("rate", "must be bytes per second, or 0 for no limit")
	}
	u := &r.storageJob
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.last.State == api.StorageJobRunning {
		return api.StorageJob{},
			farm.Errorf(farm.CodeConflict, "A storage job (%s) is running: wait for it, or cancel it",
				u.last.Request.Do)
	}
	ctx, stop := context.WithCancelCause(context.Background())
	done := make(chan struct{})
	u.last, u.cancel, u.done = api.StorageJob{State: api.StorageJobRunning, Request: &req}, stop, done
	go func() {
		defer close(done)
		defer stop(nil)
		u.finish(do(ctx, r, req))
	}()
	return u.last, nil
}

// storageJobKinds maps the kinds of storage jobs to their functions.
var storageJobKinds = map[string]func(context.Context, *Registry, api.StorageJobRequest) (api.StorageJob, error){
	api.StorageJobCheck: func(ctx context.Context, r *Registry, req api.StorageJobRequest) (api.StorageJob, error) {
		report, err := r.Check(ctx, r.storageJob.checkOptions(req))
		return api.StorageJob{Check: &report}, err
	},
	api.StorageJobRepair: func(ctx context.Context, r *Registry, req api.StorageJobRequest) (api.StorageJob, error) {
		report, err := r.Repair(ctx, r.storageJob.checkOptions(req))
		return api.StorageJob{Repair: &report}, err
	},
	api.StorageJobGC: func(ctx context.Context, r *Registry, req api.StorageJobRequest) (api.StorageJob, error) {
		report, err := r.GC(ctx, GCOptions{DryRun: req.DryRun, EmptyTrash: req.EmptyTrash})
		return api.StorageJob{GC: &report}, err
	},
}

func (u *storageJob) checkOptions(req api.StorageJobRequest) CheckOptions {
	return CheckOptions{Deep: req.Deep, Rate: req.Rate, Progress: func(p api.StorageJobProgress) {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.last.Progress = p
	}}
}

func (u *storageJob) finish(result api.StorageJob, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	result.Request, result.Progress, result.State = u.last.Request, u.last.Progress, api.StorageJobDone
	if err != nil {
		result.State, result.Problem = api.StorageJobFailed, err.Error()
	}
	u.last = result
}

// StorageJobStatus returns the status of the last requested job.
func (r *Registry) StorageJobStatus() api.StorageJob {
	r.storageJob.mu.Lock()
	defer r.storageJob.mu.Unlock()
	if r.storageJob.last.State == "" {
		return api.StorageJob{State: api.StorageJobNone}
	}
	return r.storageJob.last
}

// CancelStorageJob cancels the running job and waits for its end. It does nothing if no job runs.
func (r *Registry) CancelStorageJob() {
	r.storageJob.mu.Lock()
	stop, done := r.storageJob.cancel, r.storageJob.done
	r.storageJob.mu.Unlock()
	if stop != nil {
		stop(errJobCanceled)
		<-done
	}
}
