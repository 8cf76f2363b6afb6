package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/lazyfill"
)

// start is one start of an instance.
type start struct {
	id   string
	took time.Duration // from POST sent until Started seen
	disk lazyfill.Disk // how much of its system disk was on the node then; the zero value: all
}

func (s start) String() string {
	if s.disk.Total == 0 {
		return fmt.Sprintf("%.1f s", s.took.Seconds())
	}
	return fmt.Sprintf("%.1f s; %.1f of %.1f MiB fetched, %.1f MiB of them read, in %d frames", s.took.Seconds(),
		float64(s.disk.Bytes)/mebibyte, float64(s.disk.Total)/mebibyte, float64(s.disk.ReadBytes)/mebibyte, s.disk.Read)
}

// create asks for an instance.
func (s *stage) create(ctx context.Context, template string) (id string, err error) {
	var ids []string
	err = s.client.Send(ctx, http.MethodPost, "/api/v1/vm", map[string]any{"vmid": template, "tag": "v1"}, &ids)
	if err == nil && len(ids) != 1 {
		err = fmt.Errorf("asked for 1 instance, got %d", len(ids))
	}
	if err != nil {
		return "", err
	}
	return ids[0], nil
}

// begin starts an instance on the first node, the only one with a free slot, and waits until it is Started.
func (s *stage) begin(ctx context.Context, template string) (start, error) {
	version, err := s.version(ctx, s.nodes[0], template)
	if err != nil {
		return start{}, err
	}
	began := time.Now()
	st := start{}
	if st.id, err = s.create(ctx, template); err != nil {
		return st, err
	}
	err = s.await(ctx, startLimit, look, "an instance to start", func() (bool, error) {
		inst, err := s.instance(ctx, st.id)
		st.took = time.Since(began)
		return inst.InstanceState == "Started", err
	})
	if err != nil {
		return st, err
	}
	_, st.disk = served(ctx, version)
	return st, nil
}

// instance looks at an instance, and fails when it has failed.
func (s *stage) instance(ctx context.Context, id string) (inst api.Instance, err error) {
	err = s.client.Send(ctx, http.MethodGet, "/api/v1/vm?id="+url.QueryEscape(id), nil, &inst)
	if err == nil && inst.InstanceState == "Error" {
		err = fmt.Errorf("the instance failed: %s", inst.Message)
	}
	return inst, err
}

// once starts an instance, ends it, and returns its start.
func (s *stage) once(ctx context.Context, template string) (start, error) {
	st, err := s.begin(ctx, template)
	if st.id != "" {
		if ended := s.end(context.WithoutCancel(ctx), st.id); err == nil {
			err = ended
		}
	}
	return st, err
}

// cold is once on a node without the template.
func (s *stage) cold(ctx context.Context, template string) (start, error) {
	if err := s.discard(ctx, template); err != nil {
		return start{}, err
	}
	return s.once(ctx, template)
}
