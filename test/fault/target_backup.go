package fault

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/store/backup"
	"github.com/buildyard/buildyard/test/rig"
)

// The backup target.
const (
	backupNodes = 3
	backupSlots = 8  // of each node
	backupKeep  = 12 // instances that the load keeps; it may end one more when it stops
	backupLeast = 8  // of them that run when it goes back
	endedAfter  = 2  // of them, terminated between the backup and its restore
)

// backupTarget kills the controller in the middle of backups, and in the end goes back
// to one with instances that run.
func backupTarget(ctx context.Context, s *scene) (r result, err error) {
	template, err := s.pushTiny(ctx)
	if err != nil {
		return r, err
	}
	if err := s.simulateMany(ctx, "sim", backupNodes, backupSlots, "--boot", "20ms", "--pull", "30ms", "--exec",
		"20ms"); err != nil {
		return r, err
	}
	if err := s.awaitNodes(ctx, backupNodes); err != nil {
		return r, err
	}
	s.machines = func() ([]machine, error) { return simMachines(s.dir) }
	s.calmTime, s.capacity = time.Minute, backupNodes*backupSlots
	working, stop := context.WithCancel(ctx)
	defer stop()
	load := startLoad(working, s.client, loadOptions{
		Workers: 4, Keep: backupKeep, Longest: time.Second, Templates: []string{template}, Seed: s.seed,
		Pause: 50 * time.Millisecond,
	})
	var found findings
	err = s.strikes(ctx, func(ctx context.Context) error { return s.strikeBackup(ctx, &found) })
	for err == nil && (s.history.acknowledged() < s.needed || len(load.alive()) < backupKeep) {
		if !rig.Pause(ctx, 100*time.Millisecond) {
			err = ctx.Err()
		}
	}
	stop()
	load.wait()
	if err != nil {
		return r, err
	}
	return s.checkBackup(ctx, &found)
}

// strikeBackup kills the controller some moment after a backup has begun. What has its
// name then is whole; a backup that failed leaves no file.
func (s *scene) strikeBackup(ctx context.Context, f *findings) error {
	if err := s.cloud.Await(ctx); err != nil {
		return err
	}
	if err := s.turnMaintenance(ctx, f); err != nil {
		return err
	}
	rig.Pause(ctx, s.between(100*time.Millisecond, time.Second))
	file := filepath.Join(s.dir, fmt.Sprintf("backup%d", s.kills))
	backed := make(chan error, 1)
	go func() { backed <- s.cloud.Backup(ctx, file) }()
	rig.Pause(ctx, s.between(0, 50*time.Millisecond))
	if err := s.cloud.Kill(); err != nil {
		return err
	}
	failed := <-backed
	_, err := os.Stat(file)
	if err == nil {
		_, err = backup.VerifyFile(file)
	}
	checkFile(file, failed, err, f)
	s.killed("controller in a backup, which is whole: %v; in a maintenance: %v", failed == nil, s.maintained)
	return s.cloud.Start()
}

// turnMaintenance asks whether the maintenance is as it was last acknowledged, through kills,
// and begins or ends it: every other kill meets a controller in one.
func (s *scene) turnMaintenance(ctx context.Context, f *findings) error {
	const path = "/api/v1/maintenance"
	var now api.Maintenance
	if err := s.client.Send(ctx, http.MethodGet, path, nil, &now); err != nil {
		return fmt.Errorf("ask for the maintenance: %w", err)
	}
	checkMaintenance(s.maintained, now.On, f)
	method, body := http.MethodPost, any(api.BeginMaintenance{Reason: "fault test"})
	if s.maintained {
		method, body = http.MethodDelete, nil
	}
	if err := s.client.Send(ctx, method, path, body, nil); err != nil {
		return fmt.Errorf("turn the maintenance: %w", err)
	}
	s.maintained = !s.maintained
	return nil
}

// checkMaintenance: a maintenance that was acknowledged continues behind a kill, and one whose
// end was does not.
func checkMaintenance(want, on bool, f *findings) {
	if want != on {
		f.lost("a maintenance was acknowledged as on: %v; behind a kill it is on: %v", want, on)
	}
}

// checkFile compares the result of a backup with the file; found is why the file is missing or
// incomplete.
func checkFile(file string, failed, found error, f *findings) {
	switch {
	case failed == nil && found != nil:
		f.lost("backup %s was acknowledged and is not whole: %v", file, found)
	case failed != nil && !errors.Is(found, fs.ErrNotExist):
		f.wrong("backup %s failed and has left its file: %v", file, failed)
	}
}

// checkBackup checks the state before, restores a backup, and checks again.
func (s *scene) checkBackup(ctx context.Context, found *findings) (result, error) {
	r := s.result()
	if err := s.cloud.Await(ctx); err != nil {
		return r, err
	}
	if s.maintained { // the idle cloud is checked without maintenance mode
		if err := s.turnMaintenance(ctx, found); err != nil {
			return r, err
		}
	}
	calm, err := s.settle(ctx, func(w world, f *findings) { checkCalm(s.history.book, w, s.rules, f) })
	if err != nil {
		return r, err
	}
	checkCalls(s.history.all(), nil, s.rules, found)
	before, ended, err := s.goBack(ctx)
	if err != nil {
		return r, err
	}
	s.say("restored a backup with %d instances, %d of them terminated since; waiting for calm", len(before), len(ended))
	after, err := s.settle(ctx, func(w world, f *findings) { checkRestored(before, ended, w, f) })
	if err != nil {
		return r, err
	}
	if err := s.terminateAll(ctx); err != nil {
		return r, err
	}
	end, err := s.settle(ctx, checkEnd)
	r.count(*found, calm, after, end)
	r.Acknowledged, r.Errors = s.history.acknowledged(), s.history.errored()
	return r, err
}

// goBack makes a backup, terminates some instances, ends the controller and starts it again from
// the backup. It returns what ran at the time of the backup, and which of that was terminated
// since.
func (s *scene) goBack(ctx context.Context) (before []record, ended map[string]bool, err error) {
	w, err := s.world(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, r := range w.Records {
		if r.State == "Started" {
			before = append(before, r)
		}
	}
	if len(before) < backupLeast {
		return nil, nil, fmt.Errorf("only %d instances run; it takes %d to go back to a backup", len(before),
			backupLeast)
	}
	file, ended := filepath.Join(s.dir, "backup"), map[string]bool{}
	if err := s.cloud.Backup(ctx, file); err != nil {
		return nil, nil, err
	}
	for _, r := range before[:endedAfter] {
		ended[r.ID] = true
		if err := s.client.terminate(ctx, r.ID); err != nil {
			return nil, nil, err
		}
	}
	for end := time.Now().Add(time.Minute); ; {
		vms, err := s.machines()
		if err != nil {
			return nil, nil, err
		}
		if len(vms) == len(before)-endedAfter {
			break
		}
		if time.Now().After(end) || !rig.Pause(ctx, 100*time.Millisecond) {
			return nil, nil, errors.New("the VMs of terminated instances do not go")
		}
	}
	if err := s.cloud.End(); err != nil {
		return nil, nil, err
	}
	if err := s.cloud.Restore(ctx, file); err != nil {
		return nil, nil, err
	}
	return before, ended, s.cloud.Boot(ctx)
}

// checkRestored holds a cloud that went back to a backup against what ran then: it runs
// on, in the same VMs, and what was terminated since then is not taken to run.
func checkRestored(before []record, ended map[string]bool, w world, f *findings) {
	now, vms := map[string]record{}, map[string]int{}
	for _, r := range w.Records {
		now[r.ID] = r
	}
	for _, m := range w.Machines {
		vms[m.Instance]++
	}
	for _, was := range before {
		is, there := now[was.ID]
		switch {
		case ended[was.ID] && there && is.State != "Error":
			f.stuck("instance %s was terminated after the backup and is %s", was.ID, is.State)
		case ended[was.ID] && vms[was.ID] > 0:
			f.orphan("VM of instance %s, which was terminated after the backup", was.ID)
		case ended[was.ID]:
		case !there:
			f.lost("instance %s ran at the time of the backup and is not listed", was.ID)
		case is.State != "Started" || !is.Since.Equal(was.Since):
			f.lost("instance %s ran at the time of the backup, since %s; it is %s since %s: %s", was.ID, was.Since,
				is.State, is.Since, is.Message)
		case vms[was.ID] != 1:
			f.lost("instance %s has %d VMs after a restore", was.ID, vms[was.ID])
		}
	}
}
