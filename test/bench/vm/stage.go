package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/test/bench/runner"
	"github.com/buildyard/buildyard/test/rig"
)

// stage is the cloud of a run, with its one node.
type stage struct {
	dir      string
	cloud    *rig.Cloud
	node     *rig.Process
	client   rig.Client
	template string
}

// Time limits and polling intervals. Polling costs part of what is measured: half a look on
// average.
const (
	startLimit = 3 * time.Minute
	saveLimit  = 3 * time.Minute
	endLimit   = time.Minute
	look       = 5 * time.Millisecond
	glance     = 100 * time.Millisecond
)

// openStage starts the cloud, puts the guest into it and joins this machine. A returned stage must
// be closed, also after an error.
func openStage(ctx context.Context, b *bench) (*stage, error) {
	cloud, err := rig.NewCloud(ctx, b.Programs, b.Dir)
	if err != nil {
		return nil, err
	}
	s := &stage{dir: b.Dir, cloud: cloud, client: rig.NewClient(cloud.Controller)}
	if err := cloud.Start(); err != nil {
		return s, err
	}
	if err := cloud.Await(ctx); err != nil {
		return s, err
	}
	if s.template, err = cloud.PushGuest(ctx, b.guest); err != nil {
		return s, err
	}
	s.node, err = cloud.Join(ctx,
		rig.NodeOptions{Name: "node", Capacity: idleGuests + 2, Driver: "qemu", LogLevel: "debug"})
	if err != nil {
		return s, err
	}
	b.hypervisor, err = s.hypervisor(ctx)
	return s, err
}

// hypervisor waits for the node and returns its hypervisor.
func (s *stage) hypervisor(ctx context.Context) (h hypervisor, err error) {
	err = s.await(ctx, rig.ReadyTime, glance, "the node", func() (bool, error) {
		var nodes []api.Node
		if err := s.client.Send(ctx, http.MethodGet, "/api/v1/node", nil, &nodes); err != nil {
			return false, err
		}
		if len(nodes) != 1 || nodes[0].State != "Active" || nodes[0].AnkaVersion.Product == "" {
			return false, nil
		}
		v := nodes[0].AnkaVersion
		h = hypervisor{v.Product, v.Version, v.Build}
		return true, nil
	})
	return h, err
}

// await polls until done returns true. It fails when a program has ended.
func (s *stage) await(ctx context.Context, limit, every time.Duration, what string, done func() (bool, error)) error {
	processes := []*rig.Process{s.cloud.Process, s.node}
	return runner.Wait{What: what, Limit: limit, Every: every, Processes: processes}.Await(ctx, done)
}

// start is one start of an instance.
type start struct {
	id     string
	whole  time.Duration // from POST sent until Started seen
	before time.Duration // until QEMU was started
	boot   time.Duration // until the guest's agent had opened its port
	after  time.Duration // until Started was seen
}

// own is the part that is neither QEMU's nor the guest's.
func (s start) own() time.Duration { return s.whole - s.boot }

func (s start) String() string {
	return fmt.Sprintf("%.0f ms (%.0f own: %.0f before QEMU, %.0f after the guest was ready)",
		runner.MS(s.whole), runner.MS(s.own()), runner.MS(s.before), runner.MS(s.after))
}

// resumed describes a start of a suspended version. Its agent is available immediately, and is then
// asked to make the guest a separate VM, which is not overhead.
func (s start) resumed() string {
	return fmt.Sprintf("%.0f ms (%.0f before QEMU, %.0f after the guest went on)", runner.MS(s.whole),
		runner.MS(s.before),
		runner.MS(s.after))
}

// start starts one instance and waits until it is Started. An instance whose start
// fails is ended.
func (s *stage) start(ctx context.Context, tag string) (start, error) {
	began := time.Now()
	ids, err := s.create(ctx, tag, 1)
	if err != nil {
		return start{}, err
	}
	st, err := s.timed(ctx, ids[0], began)
	if err != nil {
		_ = s.end(ctx, ids[0]) // what is left then, close ends
		return start{}, fmt.Errorf("start of %s: %w", tag, err)
	}
	return st, nil
}

// timed waits until an instance is Started and returns how the time was spent.
func (s *stage) timed(ctx context.Context, id string, began time.Time) (start, error) {
	st := start{id: id}
	var inst api.Instance
	err := s.await(ctx, startLimit, look, "the instance to start", func() (started bool, err error) {
		inst, started, err = s.started(ctx, id)
		return started, err
	})
	seen := time.Now()
	if err != nil {
		return st, err
	}
	events, err := eventsOf(s.node.Log, id)
	if err != nil {
		return st, err
	}
	ready, err := readyAt(events)
	if err != nil || inst.VMInfo == nil {
		return st, errors.Join(err, errors.New("nothing says when the guest was ready"))
	}
	launched := inst.VMInfo.StartDate
	st.whole, st.before, st.boot, st.after = seen.Sub(began), launched.Sub(began), ready.Sub(launched), seen.Sub(ready)
	if st.before < 0 || st.boot <= 0 || st.after < 0 {
		return st, fmt.Errorf("the times of a start contradict each other: %+v", st)
	}
	return st, nil
}

// create asks for instances of a version.
func (s *stage) create(ctx context.Context, tag string, count int) (ids []string, err error) {
	err = s.client.Send(ctx, http.MethodPost, "/api/v1/vm",
		map[string]any{"vmid": s.template, "tag": tag, "count": count}, &ids)
	if err == nil && len(ids) != count {
		err = fmt.Errorf("asked for %d instances, got %d", count, len(ids))
	}
	return ids, err
}

// started looks at an instance that should start.
func (s *stage) started(ctx context.Context, id string) (inst api.Instance, started bool, err error) {
	err = s.client.Send(ctx, http.MethodGet, "/api/v1/vm?id="+url.QueryEscape(id), nil, &inst)
	if err == nil && inst.InstanceState == "Error" {
		err = fmt.Errorf("the instance failed: %s", inst.Message)
	}
	return inst, inst.InstanceState == "Started", err
}

// startMany starts instances together and returns the time until all were Started.
func (s *stage) startMany(ctx context.Context, tag string, count int) (time.Duration, error) {
	began := time.Now()
	ids, err := s.create(ctx, tag, count)
	if err != nil {
		return 0, err
	}
	for _, id := range ids {
		err := s.await(ctx, startLimit, glance, "the instances to start", func() (bool, error) {
			_, started, err := s.started(ctx, id)
			return started, err
		})
		if err != nil {
			return 0, err
		}
	}
	return time.Since(began), nil
}

// gone reports whether an instance has ended, and its VM with it.
func (s *stage) gone(ctx context.Context, id string) (bool, error) {
	var inst api.Instance
	err := s.client.Send(ctx, http.MethodGet, "/api/v1/vm?id="+url.QueryEscape(id), nil, &inst)
	if errors.Is(err, rig.Refusal("Not found")) {
		return true, nil
	}
	return inst.InstanceState == "Terminated", err
}

// end terminates an instance and waits until it is gone.
func (s *stage) end(ctx context.Context, id string) error {
	err := s.client.Send(ctx, http.MethodDelete, "/api/v1/vm", map[string]string{"id": id}, nil)
	if err != nil && !errors.Is(err, rig.Refusal("Not found")) {
		return err
	}
	return s.await(ctx, endLimit, glance, "the instance to end", func() (bool, error) { return s.gone(ctx, id) })
}

// endAll ends all instances together, and waits until no QEMU is left.
func (s *stage) endAll(ctx context.Context) error {
	var list []api.InstanceItem
	if err := s.client.Send(ctx, http.MethodGet, "/api/v1/vm", nil, &list); err != nil {
		return err
	}
	for _, item := range list {
		err := s.client.Send(ctx, http.MethodDelete, "/api/v1/vm", map[string]string{"id": item.InstanceID}, nil)
		if err != nil && !errors.Is(err, rig.Refusal("Not found")) {
			return err
		}
	}
	return s.await(ctx, endLimit, glance, "the VMs to end", func() (bool, error) {
		left, err := rig.QEMUs(s.dir)
		return len(left) == 0, err
	})
}

// close ends the instances, then the programs, then by force the remaining QEMU processes. It has a
// separate time limit, since the run may have been ended.
func (s *stage) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endLimit)
	defer cancel()
	var errs []error
	if s.node != nil && s.node.Running() && s.cloud.Running() {
		errs = append(errs, s.endAll(ctx))
	}
	if s.node != nil {
		errs = append(errs, s.node.End())
	}
	errs = append(errs, s.cloud.End())
	left, err := rig.QEMUs(s.dir)
	errs = append(errs, err)
	for _, q := range left {
		_, err := q.Kill(s.dir)
		errs = append(errs, err, fmt.Errorf("the QEMU of instance %s had to be killed", q.UUID))
	}
	return errors.Join(errs...)
}
