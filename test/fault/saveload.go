package fault

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/test/rig"
)

// saveOptions are how the clients of the save target behave.
type saveOptions struct {
	Workers  int
	Sweepers int    // of those, the ones that terminate in the middle of every step
	Keep     int    // instances that are left alive at a time
	Base     string // template that instances are started from
	Target   string // template that gets tags; half of them in the place of its latest
	Seed     uint64
}

// saveLoad is a number of clients that start instances, save and restart them, and
// terminate some in the middle of it.
type saveLoad struct {
	saveOptions
	client *client
	kept   load // holds the instances that are left alive
	wg     sync.WaitGroup

	mu    sync.Mutex        // guards the fields below
	made  []saveExpectation // saves that are done and whose versions are not reverted
	marks map[string]string
	ends  map[string]int // step -> terminations that met it
}

func startSaveLoad(ctx context.Context, c *client, o saveOptions) *saveLoad {
	l := &saveLoad{saveOptions: o, client: c, ends: map[string]int{}, marks: map[string]string{}}
	l.kept.Keep = o.Keep
	for i := range o.Workers {
		rng := rand.New(rand.NewPCG(o.Seed, uint64(i)+2000)) //nolint:gosec // a test that can be repeated
		l.wg.Go(func() {
			if i < o.Sweepers {
				l.sweep(ctx, i, rng)
				return
			}
			for n := 0; ctx.Err() == nil; n++ {
				j := &saveJob{load: l, rng: rng, name: fmt.Sprintf("save-%d-%d", i, n)}
				j.run(ctx)
			}
		})
	}
	return l
}

func (l *saveLoad) wait() { l.wg.Wait() }

func (l *saveLoad) alive() []string { return l.kept.alive() }

// met counts a termination by the step of the instance that it met.
func (l *saveLoad) met(step string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ends[step]++
}

// source draws what an instance is started from: the base, or what a save has made.
func (l *saveLoad) source(rng *rand.Rand) (template, tag string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.made) == 0 || rng.IntN(3) > 0 {
		return l.Base, ""
	}
	w := l.made[rng.IntN(len(l.made))]
	return l.marks[w.Tag], w.Tag
}

// publish keeps a version that others may start from.
func (l *saveLoad) publish(w saveExpectation, template string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.made = append(l.made, w)
	l.marks[w.Tag] = template
}

// saveJob is the life of one instance.
type saveJob struct {
	load   *saveLoad
	rng    *rand.Rand
	name   string // unique; what the guest writes down
	id     string
	saves  int
	memory bool      // the guest's memory surely has what its startup script wrote
	since  time.Time // start date before its restart
	aimed  string    // the step in which a sweep means to terminate it
}

// errOver is the end of a job whose instance is gone or on its way.
var errOver = errors.New("the instance is gone")

// create asks for the instance.
func (j *saveJob) create(ctx context.Context) error {
	template, tag := j.load.source(j.rng)
	ids, err := j.load.client.create(ctx, order{
		Template: template, Tag: tag, ExternalID: j.name, Count: 1, Script: startScript(j.name), Monitoring: true,
	})
	if err != nil {
		rig.Pause(ctx, 100*time.Millisecond)
		return err
	}
	j.id, j.memory = ids[0], true
	return nil
}

func (j *saveJob) run(ctx context.Context) {
	if j.create(ctx) != nil {
		return
	}
	if j.rng.IntN(6) == 0 { // somewhere between Scheduling and the end of the script
		j.endAfter(ctx, time.Duration(j.rng.Int64N(int64(1500*time.Millisecond))))
		return
	}
	if err := j.started(ctx, scriptEnded); err != nil {
		j.endAfter(ctx, 0)
		return
	}
	for range 3 {
		if err := j.act(ctx); err != nil {
			return
		}
	}
	if j.rng.IntN(4) == 0 {
		j.id = j.load.kept.keep(j.id)
	}
	if j.id != "" {
		j.endAfter(ctx, 0)
	}
}

// The moments that started waits for.
var (
	scriptRuns  = func(api.Instance) bool { return true }
	scriptEnded = func(inst api.Instance) bool { return inst.StartupScript != nil }
)

// started waits until the instance has started and its script is as far as is asked.
func (j *saveJob) started(ctx context.Context, far func(api.Instance) bool) error {
	for rig.Pause(ctx, 50*time.Millisecond) {
		inst, err := j.load.client.inspect(ctx, j.id)
		switch {
		case err != nil:
		case inst.InstanceState == "Error" || inst.InstanceState == notFound:
			return errOver
		case inst.InstanceState == "Started" && far(inst):
			return nil
		}
	}
	return ctx.Err()
}

// act runs one operation on a started instance: a save, a restart, or nothing for a while.
func (j *saveJob) act(ctx context.Context) error {
	switch j.rng.IntN(6) {
	case 0:
		rig.Pause(ctx, time.Duration(j.rng.Int64N(int64(500*time.Millisecond))))
		return ctx.Err()
	case 1, 2:
		return j.restart(ctx)
	default:
		return j.save(ctx)
	}
}

// restart requests a restart and mostly waits until it is over; sometimes it terminates the
// instance before that, and sometimes it continues immediately.
func (j *saveJob) restart(ctx context.Context) error {
	inst, err := j.load.client.inspect(ctx, j.id)
	if err != nil || inst.InstanceState != "Started" {
		rig.Pause(ctx, 100*time.Millisecond)
		return ctx.Err()
	}
	err = j.load.client.restart(ctx, inst)
	if _, refused := errors.AsType[rig.Refusal](err); refused {
		rig.Pause(ctx, 100*time.Millisecond)
		return ctx.Err()
	}
	j.memory = false
	if err != nil {
		return ctx.Err() // it is unknown whether it was accepted
	}
	switch j.rng.IntN(4) {
	case 0:
		j.endAfter(ctx, time.Duration(j.rng.Int64N(int64(500*time.Millisecond))))
		return errOver
	case 1:
		return nil
	}
	for range 200 { // a longer restart is checked when the cloud is idle
		now, err := j.load.client.inspect(ctx, j.id)
		if err == nil && (now.InstanceState != "Started" || startDate(now).After(startDate(inst))) {
			return nil
		}
		if !rig.Pause(ctx, 50*time.Millisecond) {
			return ctx.Err()
		}
	}
	return nil
}

// endAfter terminates the instance after a while.
func (j *saveJob) endAfter(ctx context.Context, d time.Duration) {
	rig.Pause(ctx, d)
	j.end(ctx)
}

// end terminates the instance and counts in which step it was.
func (j *saveJob) end(ctx context.Context) {
	if inst, err := j.load.client.inspect(ctx, j.id); err == nil {
		met := step(inst)
		if j.aimed == "restart" && met == "Started" && startDate(inst).Equal(j.since) {
			met = "Started: restart"
		}
		j.load.met(met)
	}
	l := load{loadOptions: loadOptions{Pause: 50 * time.Millisecond}, client: j.load.client}
	l.terminate(ctx, j.id, j.rng.IntN(4) == 0)
}

// saveSteps are the steps of a save in their order, with the words by which the message of an
// instance names them. Any other words are those of the first.
var saveSteps = []struct{ name, words string }{
	{"waiting", "waiting for its node"},
	{"script", "its script runs"},
	{"saving", "writing disks"},
	{"testing", "testing"},
	{"pushing", "pushing"},
}

// saveStep returns the name of a step of a save as step does.
func saveStep(name string) string { return "Pushing: " + name }

// reached reports whether an instance is at a step of its save or past it.
func reached(inst api.Instance, want string) bool {
	at := step(inst)
	for _, s := range saveSteps {
		switch saveStep(s.name) {
		case want:
			return true
		case at:
			return false
		}
	}
	return true
}

// step names how far an instance is: its state, and in a save its stage.
func step(inst api.Instance) string {
	switch {
	case inst.InstanceState == "Started" && inst.StartupScript == nil:
		return "Started: script"
	case inst.InstanceState != "Pushing":
		return inst.InstanceState
	}
	for _, s := range saveSteps {
		if strings.Contains(inst.Message, s.words) {
			return saveStep(s.name)
		}
	}
	return saveStep("waiting")
}
