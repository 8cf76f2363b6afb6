package fault

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/buildyard/buildyard/test/rig"
)

// aims are the steps in which a sweep terminates instances, one after another.
var aims = []string{
	"start", "startup script", saveStep("waiting"), saveStep("script"), saveStep("saving"), saveStep("testing"),
	saveStep("pushing"), "restart",
}

// sweep terminates instance after instance, each as close as it can to the next step.
func (l *saveLoad) sweep(ctx context.Context, worker int, rng *rand.Rand) {
	for n := 0; ctx.Err() == nil; n++ {
		j := &saveJob{load: l, rng: rng, name: fmt.Sprintf("sweep-%d-%d", worker, n)}
		if err := j.create(ctx); err != nil {
			continue
		}
		j.aimed = aims[(n+worker)%len(aims)]
		j.aim(ctx)
		j.end(ctx)
	}
}

// aim brings the instance to its step, or past it when the step is short, and leaves
// it there after a moment.
func (j *saveJob) aim(ctx context.Context) {
	moment := time.Duration(j.rng.Int64N(int64(30 * time.Millisecond)))
	if j.aimed == "start" {
		rig.Pause(ctx, 10*moment)
		return
	}
	far := scriptEnded
	if j.aimed == "startup script" {
		far = scriptRuns
	}
	if j.started(ctx, far) != nil {
		return
	}
	switch j.aimed {
	case "startup script":
	case "restart":
		if inst, err := j.load.client.inspect(ctx, j.id); err == nil {
			_ = j.load.client.restart(ctx, inst) // the history has the answer
			j.since = startDate(inst)
		}
	default:
		w := j.drawSave()
		for !fits(w, j.aimed) {
			w = j.drawSave()
		}
		if _, err := j.load.client.save(ctx, w); err == nil {
			j.awaitStep(ctx, j.aimed)
		}
	}
	rig.Pause(ctx, moment)
}

// fits reports whether a save has a step.
func fits(w saveExpectation, step string) bool {
	switch step {
	case saveStep("script"):
		return w.Script != ""
	case saveStep("testing"):
		return w.SanityTest && !w.Fails
	default:
		return !w.Fails
	}
}
