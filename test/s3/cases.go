package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/buildyard/buildyard/internal/transfer"
	"github.com/buildyard/buildyard/test/rig"
)

const (
	smallDisk = 2 << 20
	largeDisk = 23 << 20 // several parts
)

// caseServer runs the self-test of the registry against the server.
func caseServer(ctx context.Context, s *stage) (string, error) {
	b, err := s.bucket("http://" + s.address)
	if err != nil {
		return "", err
	}
	if err := b.SelfTest(ctx); err != nil {
		return "", err
	}
	version, err := rig.Output(ctx, "", s.options.gateway, "--version")
	if err != nil {
		return "", err
	}
	return strings.Join(strings.Fields(version), " ") + ": conditional writes, one winner of 8, newest listing, " +
		"ranges, parts in any order", nil
}

// caseSuites runs the conformance suite of stores and the life of templates against the server.
func caseSuites(ctx context.Context, s *stage) (string, error) {
	root, err := rig.Output(ctx, "", "go", "list", "-m", "-f", "{{.Dir}}", "github.com/buildyard/buildyard")
	if err != nil {
		return "", err
	}
	out, err := rig.Output(ctx, strings.TrimSpace(root), "env", "CGO_ENABLED=0", "BUILDYARD_TEST_S3=http://"+s.address,
		"AWS_ACCESS_KEY_ID="+accessKey, "AWS_SECRET_ACCESS_KEY="+secretKey, "go", "test", "-trimpath", "-count=1", "-v",
		"-run", "TestStore|TestLifeOfTemplates", "./internal/blob/s3", "./internal/registry/s3backend")
	passed := strings.Count(out, "--- PASS")
	if err == nil && passed < 12 {
		err = fmt.Errorf("only %d tests passed", passed)
	}
	return fmt.Sprintf("%d tests passed", passed), err
}

// caseLife: push, pull, revert, collect and delete, continued in another working directory.
func caseLife(ctx context.Context, s *stage) (string, error) {
	small, err := s.makeDisk(1, smallDisk)
	if err != nil {
		return "", err
	}
	large, err := s.makeDisk(2, largeDisk)
	if err != nil {
		return "", err
	}
	r, err := s.start(ctx, "one", "s3", nil)
	if err != nil {
		return "", err
	}
	err = errors.Join(r.push(ctx, idA, "v1", small), r.push(ctx, idA, "v2", large), r.push(ctx, idB, "v1", small))
	if err != nil {
		return "", err
	}
	if err := s.checkAll(ctx, r, idA, map[string]diskFile{"v1": small, "v2": large}); err != nil {
		return "", err
	}
	if err := r.client.Revert(ctx, transfer.VersionRef{ID: idA, Tag: "v2"}); err != nil {
		return "", err
	}
	if err := errors.Join(r.client.DeleteTemplate(ctx, idB), r.process.End()); err != nil {
		return "", err
	}
	next, err := s.start(ctx, "two", "s3", nil)
	if err != nil {
		return "", err
	}
	if err := s.checkAll(ctx, next, idA, map[string]diskFile{"v1": small}); err != nil {
		return "", err
	}
	if _, err := next.client.TemplateDetail(ctx, idB); err == nil {
		return "", errors.New("the deleted template is there")
	}
	return "push, pull, revert and delete are there for the next registry", next.push(ctx, idA, "v2", large)
}

// caseRequests counts the requests of a commit that are not its data.
func caseRequests(ctx context.Context, s *stage) (string, error) {
	r, err := s.start(ctx, "one", "s3", map[string]string{"SVC_BACKEND_S3_LEASE_DURATION": "10m"})
	if err != nil {
		return "", err
	}
	var evidence []string
	for i, size := range []int64{smallDisk, largeDisk} {
		d, err := s.makeDisk(uint64(10+i), size)
		if err != nil {
			return "", err
		}
		s.proxy.takeRequests()
		if err := r.push(ctx, idA, fmt.Sprint("v", i), d); err != nil {
			return "", err
		}
		list, _ := s.proxy.takeRequests()
		beyond, data := splitRequests(list)
		s.figures["commit_requests"] = max(s.figures["commit_requests"], float64(len(beyond)))
		evidence = append(evidence, fmt.Sprintf("%d MiB: %d of data, %d beyond", size>>20, data, len(beyond)))
		if len(beyond) > 5 || len(beyond) == 0 || data == 0 {
			return strings.Join(evidence, "; "), fmt.Errorf("beyond its data: %q", beyond)
		}
	}
	return strings.Join(evidence, "; "), nil
}

// splitRequests parts the requests of a push into those of the data (parts, their upload's begin, small layers) and
// those of its commit.
func splitRequests(list []string) (beyond []string, data int) {
	for _, q := range list {
		small := strings.HasPrefix(q, "PUT images_dir/") && !strings.Contains(q, "@")
		if small || strings.Contains(q, "partNumber") || strings.HasSuffix(q, " uploads") {
			data++
			continue
		}
		beyond = append(beyond, q)
	}
	return beyond, data
}

// casePresigned: layers come from the bucket, and through the registry when the bucket refuses or the operator wants.
func casePresigned(ctx context.Context, s *stage) (string, error) {
	r, err := s.start(ctx, "one", "s3", nil)
	if err != nil {
		return "", err
	}
	d, err := s.makeDisk(20, largeDisk)
	if err != nil {
		return "", err
	}
	if err := r.push(ctx, idA, "v1", d); err != nil {
		return "", err
	}
	direct, proxied, err := s.countPull(ctx, r, d)
	if err != nil || direct == 0 || proxied != 0 {
		return "", fmt.Errorf("%d reads by nodes and %d by the registry: %w", direct, proxied, err)
	}
	s.proxy.setRule(func(r *http.Request) action {
		if r.URL.Query().Has("X-Amz-Signature") {
			return action{status: http.StatusForbidden} // as after the expiry of a URL
		}
		return action{}
	})
	refused, second, err := s.countPull(ctx, r, d)
	if err != nil || second == 0 {
		return "", fmt.Errorf("with refused URLs: %d reads by the registry: %w", second, err)
	}
	s.proxy.setRule(nil)
	if err := r.process.End(); err != nil {
		return "", err
	}
	r, err = s.start(ctx, "one", "s3", map[string]string{"SVC_BACKEND_S3_PROXY_PULLS": "true"})
	if err != nil {
		return "", err
	}
	third, fourth, err := s.countPull(ctx, r, d)
	if err != nil || third != 0 || fourth == 0 {
		return "", fmt.Errorf("with proxied pulls: %d reads by nodes, %d by the registry: %w", third, fourth, err)
	}
	return fmt.Sprintf("%d ranges direct; after %d refusals %d through the registry; %d with proxied pulls", direct,
		refused, second, fourth), nil
}

// countPull pulls version v1 and counts the reads of its layer by URLs and by the registry.
func (s *stage) countPull(ctx context.Context, r *registryProcess, d diskFile) (direct, proxied int, err error) {
	s.proxy.takeRequests()
	err = s.pull(ctx, r, idA, "v1", d)
	list, _ := s.proxy.takeRequests()
	for _, q := range list {
		switch {
		case !strings.HasPrefix(q, "GET stream_dir/"):
		case strings.Contains(q, "presigned"):
			direct++
		default:
			proxied++
		}
	}
	return direct, proxied, err
}

// caseCopy copies a storage on disk into the bucket, kills the copy and repeats it.
func caseCopy(ctx context.Context, s *stage) (string, error) {
	small, err := s.makeDisk(30, smallDisk)
	if err != nil {
		return "", err
	}
	large, err := s.makeDisk(31, 40<<20)
	if err != nil {
		return "", err
	}
	r, err := s.start(ctx, "disk", "disk", nil)
	if err != nil {
		return "", err
	}
	if err := errors.Join(r.push(ctx, idA, "v1", small), r.push(ctx, idA, "v2", large)); err != nil {
		return "", err
	}
	parts, cut := 0, false
	command := func() *rig.Process {
		p := rig.NewProcess(s.caseDir, "copy", s.program, "registry", "copy", "--base-path", r.base, "--to",
			"s3://"+bucketName+"/"+prefix, "-o", "json")
		p.Set(map[string]string{
			"SVC_BACKEND_S3_ENDPOINT": s.proxy.url(), "SVC_BACKEND_S3_REGION": "us-east-1",
			"SVC_BACKEND_S3_USE_PATH_STYLE": "true", "AWS_ACCESS_KEY_ID": accessKey, "AWS_SECRET_ACCESS_KEY": secretKey,
		})
		return p
	}
	first := command()
	s.proxy.setRule(func(r *http.Request) action {
		if !r.URL.Query().Has("partNumber") || strings.Contains(r.URL.Path, ".selftest") {
			return action{}
		}
		if parts++; parts == 2 && !cut {
			cut = true
			return action{after: func() { _ = first.Kill() }}
		}
		return action{}
	})
	if err := runToEnd(ctx, first); err != nil {
		return "", err
	}
	if err := runToEnd(ctx, command()); err != nil {
		return "", err
	}
	s.proxy.setRule(nil)
	if err := r.process.End(); err != nil {
		return "", err
	}
	next, err := s.start(ctx, "one", "s3", nil)
	if err != nil {
		return "", err
	}
	if !cut {
		return "", errors.New("the copy was not killed")
	}
	return fmt.Sprintf("killed at its second part, %d parts sent", parts),
		s.checkAll(ctx, next, idA, map[string]diskFile{"v1": small, "v2": large})
}

func runToEnd(ctx context.Context, p *rig.Process) error {
	if err := p.Start(); err != nil {
		return err
	}
	return waitUntil(ctx, startLimit, func() error {
		if p.Running() {
			return errors.New("it runs")
		}
		return nil
	})
}
