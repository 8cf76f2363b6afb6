package nodeinput

import (
	"time"

	"github.com/buildyard/buildyard/api"
)

// Report bounds a report.
func Report(r *api.Report) error {
	for _, err := range []error{
		protocol(r.Protocol), tooLong("statuses", r.Statuses, MaxStatuses),
		tooLong("errands", r.CacheJobs, MaxStatuses),
		refuse(name{"node_id", r.NodeID, MaxID}, name{"boot_id", r.BootID, MaxID}),
	} {
		if err != nil {
			return err
		}
	}
	clamp(maxNo, &r.Seq)
	for i := range r.Statuses {
		if err := status("statuses.", &r.Statuses[i]); err != nil {
			return err
		}
	}
	for i := range r.CacheJobs {
		if err := cacheJob(&r.CacheJobs[i]); err != nil {
			return err
		}
	}
	return nil
}

// status bounds the status of one instance; field is the path to it.
func status(field string, s *api.InstanceStatus) error {
	err := refuse(
		name{field + "instance_id", s.InstanceID, MaxID}, name{field + "claim", s.Claim, MaxID},
		name{field + "phase", string(s.Phase), MaxID},
	)
	if err != nil {
		return err
	}
	clamp(maxNo, &s.No)
	clampShare(&s.Progress)
	cutLines(&s.Message)
	if s.Failure != nil {
		cut(MaxID, &s.Failure.Class, &s.Failure.Step)
	}
	if s.VM != nil {
		machine(s.VM)
	}
	script(s.Script)
	if t := s.Task; t != nil {
		clampShare(&t.Progress)
		cutLines(&t.Message)
		t.Code = min(max(t.Code, -maxCode), maxCode)
		script(t.Script)
		version(t.Version)
		return refuse(name{field + "task.id", t.ID, MaxID}, name{field + "task.stage", string(t.Stage), MaxID})
	}
	return nil
}

// machine bounds a VM as its node reports it.
func machine(v *api.NodeVM) {
	cut(MaxField, &v.Version, &v.Accel)
	cut(MaxName, &v.UUID, &v.Name, &v.Status, &v.IP, &v.HostIP, &v.MAC)
	clamp(MaxCores, &v.CPUs)
	clamp(MaxMemoryMB, &v.MemoryMB)
	clamp(maxPort, &v.VNCPort)
	clamp(maxPID, &v.PID)
	v.Ports = ports(v.Ports)
	for _, t := range []*time.Time{&v.Created, &v.Started, &v.Stopped} {
		if t.Year() < 1970 || t.Year() >= 9999 { // neither a record nor arithmetic supports it
			*t = time.Time{}
		}
	}
}

// script bounds the outcome of a script but for its output.
func script(s *api.ScriptStatus) {
	if s == nil {
		return
	}
	s.Code = min(max(s.Code, -maxCode), maxCode)
	s.Errors = s.Errors[:min(len(s.Errors), maxErrors)]
	for i := range s.Errors {
		cut(MaxField, &s.Errors[i])
	}
}

// version bounds the report of a pushed version.
func version(v *api.PushResult) {
	if v == nil {
		return
	}
	cut(MaxName, &v.ID, &v.Name, &v.ContentID)
	cut(MaxField, &v.Tag)
	clamp(maxCount, &v.Number)
	clamp(maxNo, &v.Gen)
	clamp(maxBytes, &v.Size)
}

// cacheJob bounds the fields of a node's cache job status.
func cacheJob(e *api.CacheJobStatus) error {
	clampShare(&e.Progress)
	clamp(maxCount, &e.Removed, &e.Kept)
	cutLines(&e.Message)
	return refuse(name{"errands.id", e.ID, MaxID}, name{"errands.stage", string(e.Stage), MaxID})
}
