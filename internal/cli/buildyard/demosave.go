package buildyard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/buildyard/buildyard/client"
)

// The files that keep the nonce across the save: one in the guest's memory, one on its disk.
const (
	memoryFile = "/dev/shm/nonce"
	diskFile   = "/var/tmp/nonce"
)

// saveInstance writes the nonce into the running guest and saves that as demo:v2. The save
// terminates the instance.
func (d *demo) saveInstance(ctx context.Context) error {
	script := fmt.Sprintf("echo %[1]s >%[2]s\necho %[1]s >%[3]s\n", d.nonce, memoryFile, diskFile)
	request, err := d.controllerClient.Save(ctx, client.SaveRequest{
		InstanceID: d.savedRun.InstanceID, TargetID: d.templateID, Tag: "v2",
		Description:     "the demo guest while it runs",
		CancelOnFailure: true, Script: []byte(script),
	})
	if err != nil {
		return fmt.Errorf("save the instance: %w", err)
	}
	if err := d.awaitSave(ctx, request); err != nil {
		return fmt.Errorf("save the instance: %w", err)
	}
	if err := d.awaitEmpty(ctx); err != nil {
		return err
	}
	more, err := d.incrementBytes(ctx)
	if err != nil {
		return err
	}
	d.printStep("save",
		"demo:v2 has the running guest, memory and disk: %d bytes more than v1%s; the saved VM has ended",
		more, d.nodeLog.savePause())
	return nil
}

// awaitSave waits until a save is done.
func (d *demo) awaitSave(ctx context.Context, request string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 3*time.Minute, errors.New("waited 3m0s for the save"))
	defer cancel()
	_, err := d.controllerClient.WaitSaved(ctx, request, nil)
	return err
}

// incrementBytes returns the bytes that a node with v1 needs for v2.
func (d *demo) incrementBytes(ctx context.Context) (int64, error) {
	detail, err := d.controllerClient.Template(ctx, d.templateID)
	if err != nil {
		return 0, err
	}
	if len(detail.Versions) != 2 || detail.Versions[1].StateFile == "" {
		return 0, fmt.Errorf("template demo has %d versions; v1 and a suspended v2 were expected", len(detail.Versions))
	}
	return detail.Versions[1].Size - detail.Versions[0].Size, nil
}

// resumeInstance starts v2 and reads the nonce back from memory and from disk.
func (d *demo) resumeInstance(ctx context.Context) error {
	run, err := d.startAndWait(ctx, "v2", "cat "+memoryFile+"\ncat "+diskFile+"\n")
	if err != nil {
		return err
	}
	said, err := d.awaitScript(ctx, run.InstanceID)
	if err != nil {
		return err
	}
	if want := d.nonce + "\n" + d.nonce; said != want {
		return fmt.Errorf("want the nonce of this run in memory and on disk of the guest, got %q", said)
	}
	d.printStep("resume", "%s resumed from v2: memory and disk have %s; ready %s after its VM was started, v1 took %s",
		run.InstanceID, d.nonce, run.startDuration.Round(10*time.Millisecond),
		d.savedRun.startDuration.Round(10*time.Millisecond))
	return nil
}
