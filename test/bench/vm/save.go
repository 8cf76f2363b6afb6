package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/buildyard/buildyard/api"
)

// save saves a running instance as a suspended version, after a script in the guest, and waits
// until the instance has ended. It returns how long the guest was paused.
func (s *stage) save(ctx context.Context, id, tag, script string) (pause standstill, err error) {
	var answer api.SaveImageAnswer
	err = s.client.Send(ctx, http.MethodPost, "/api/v1/image", map[string]any{
		"id": id, "target_vm_id": s.template, "tag": tag, "description": "measured", "suspend": true,
		"script": []byte(script), "cancel_on_script_failure": true,
	}, &answer)
	if err != nil {
		return pause, fmt.Errorf("save of %s: %w", tag, err)
	}
	err = s.await(ctx, saveLimit, glance, "the save", func() (bool, error) { return s.saved(ctx, answer.RequestID) })
	if err == nil {
		err = s.await(ctx, endLimit, glance, "the end of the saved instance",
			func() (bool, error) { return s.gone(ctx, id) })
	}
	if err != nil {
		return pause, fmt.Errorf("save of %s: %w", tag, err)
	}
	return standstillOf(s.node.Log, id)
}

// saved reports whether a save is done.
func (s *stage) saved(ctx context.Context, request string) (bool, error) {
	var record api.SaveImage
	err := s.client.Send(ctx, http.MethodGet, "/api/v1/image?id="+url.QueryEscape(request), nil, &record)
	if err != nil || record.Status != "error" {
		return record.Status == "done", err
	}
	if record.Error == nil {
		return false, errors.New("the save failed and does not say why")
	}
	return false, fmt.Errorf("the save failed: %s", record.Error.Message)
}

// suspended makes sure that a version has a saved state: otherwise it would boot, and
// its starts would measure something else.
func (s *stage) suspended(ctx context.Context, tag string) error {
	var detail api.TemplateDetail
	if err := s.client.Send(ctx, http.MethodGet, "/api/v1/registry/vm?id="+url.QueryEscape(s.template),
		nil, &detail); err != nil {
		return err
	}
	for _, v := range detail.Versions {
		if v.Tag == tag && v.StateFile != "" {
			return nil
		}
	}
	return fmt.Errorf("version %s has no saved state", tag)
}
