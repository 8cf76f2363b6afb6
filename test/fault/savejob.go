package fault

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/test/rig"
)

// Where guests write markers: on their disk and in their memory.
const (
	diskFile   = "/nonce"
	savedFile  = "/saved"
	memoryFile = "/dev/shm/nonce"
	twiceFile  = "/twice" // the saves whose script ran twice
)

// startScript returns a script that makes a guest distinguishable from all others.
func startScript(name string) []byte {
	return fmt.Appendf(nil, "echo disk %s >%s\necho memory %s >%s\nsync\nsleep 0.2\n", name, diskFile, name, memoryFile)
}

// saveScript leaves the tag in the guest that is saved, and a trace when it is run a
// second time. Simulated guests do not understand that line.
func saveScript(tag string) string {
	return fmt.Sprintf("[ -e /ran-%s ] && echo twice %s >>%s\necho ran >/ran-%s\nsleep 0.2\necho saved %s >%s\n",
		tag, tag, twiceFile, tag, tag, savedFile)
}

// proofScript prints what startScript and the scripts of saves wrote down.
const proofScript = "cat " + diskFile + "\ncat " + savedFile + "\ncat " + memoryFile +
	"\ncat " + twiceFile + "\necho end\n"

// drawSave draws a save of the job's instance.
func (j *saveJob) drawSave() saveExpectation {
	w := saveExpectation{saveOrder: saveOrder{
		Instance: j.id, Tag: fmt.Sprintf("%s-%d", j.name, j.saves), Suspend: j.rng.IntN(3) > 0,
	}}
	j.saves++
	if w.Target = j.load.Target; j.rng.IntN(2) == 0 {
		w.Target, w.NewName = "", w.Tag
	}
	w.Revert = w.Target != "" && j.rng.IntN(2) == 0
	w.SanityTest = w.Suspend && j.rng.IntN(2) == 0
	w.Holds = []string{"disk " + j.name}
	switch {
	case !w.Suspend:
		w.Lacks = append(w.Lacks, "memory "+j.name)
	case j.memory:
		w.Holds = append(w.Holds, "memory "+j.name)
	}
	if j.rng.IntN(2) == 0 {
		w.scripted()
		if w.Fails = j.rng.IntN(5) == 0; w.Fails {
			w.Script, w.MustSucceed = w.Script+"exit 3\n", true
		}
	}
	return w
}

// scripted adds a script to a save, whose end is unknown when the agent is killed during it.
func (w *saveExpectation) scripted() {
	w.Script, w.May = saveScript(w.Tag), append(w.May, lostScript)
	w.Holds, w.Lacks = append(w.Holds, "saved "+w.Tag), append(w.Lacks, "twice "+w.Tag)
}

// save requests a save and waits for its end, or terminates the instance before that.
func (j *saveJob) save(ctx context.Context) error {
	w := j.drawSave()
	id, err := j.load.client.save(ctx, w)
	if _, refused := errors.AsType[rig.Refusal](err); refused {
		rig.Pause(ctx, 100*time.Millisecond)
		return ctx.Err()
	}
	if !w.Suspend {
		j.memory = false // the guest may be shut down, whatever comes of the save
	}
	if err != nil {
		if id = j.load.client.find(ctx, w); id == "" {
			return ctx.Err()
		}
	}
	switch j.rng.IntN(8) {
	case 0, 1:
		j.endAfter(ctx, time.Duration(j.rng.Int64N(int64(900*time.Millisecond))))
		return errOver
	case 2:
		j.awaitStep(ctx, saveStep(saveSteps[j.rng.IntN(len(saveSteps))].name))
		j.end(ctx)
		return errOver
	}
	r, err := j.ended(ctx, id)
	switch {
	case err != nil:
		return err
	case r.Status != saveDone:
		return nil
	case w.NewName != "":
		j.load.publish(w, r.Request.TemplateID)
	}
	j.gone(ctx)
	return errOver
}

// awaitStep waits until the save is at a step, or past it.
func (j *saveJob) awaitStep(ctx context.Context, want string) {
	for range 100 {
		inst, err := j.load.client.inspect(ctx, j.id)
		if err == nil && reached(inst, want) {
			return
		}
		if !rig.Pause(ctx, 10*time.Millisecond) {
			return
		}
	}
}

// ended waits until a save request has ended, for as long as the load lasts.
func (j *saveJob) ended(ctx context.Context, id string) (api.SaveImage, error) {
	for rig.Pause(ctx, 50*time.Millisecond) {
		_, _ = j.load.client.look(ctx, j.id) // for the history: what is shown during a save
		r, err := j.load.client.request(ctx, id)
		if err == nil && r.Status != savePending {
			return r, nil
		}
	}
	return api.SaveImage{}, ctx.Err()
}

// gone polls a few times whether an instance that was saved ends automatically.
func (j *saveJob) gone(ctx context.Context) {
	for range 20 {
		if state, err := j.load.client.look(ctx, j.id); err == nil && state == notFound {
			return
		}
		if !rig.Pause(ctx, 100*time.Millisecond) {
			return
		}
	}
}
