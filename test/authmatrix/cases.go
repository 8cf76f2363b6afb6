package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// probe is a case that is not a cell. said is a figure for the report.
type probe struct {
	name string
	do   func(ctx context.Context, s *deployment) (said string, err error)
}

// handshakes are the cases of keys and sessions, on a site with everything on. That which makes
// an address fail too often comes last.
var handshakes = []probe{
	{"open routes", openRoutes},
	{"a secret is good once", quiet(replayed)},
	{"both alphabets of base64", quiet(alphabets)},
	{"a secret is of its id", quiet(foreignID)},
	{"a deleted key ends its sessions", quiet(deletedKey)},
	{"permissions count at once", quiet(livePermissions)},
	{"the minimum set", quiet(minimumSet)},
	{"a header of a megabyte", quiet(hugeHeaders)},
	{"10,000 live sessions", manySessions},
	{"only failures are limited", quiet(onlyFailures)},
}

// quiet wraps a case without figures.
func quiet(do func(context.Context, *deployment) error) func(context.Context, *deployment) (string, error) {
	return func(ctx context.Context, s *deployment) (string, error) { return "", do(ctx, s) }
}

// openRoutes compares the routes that need no authentication with the contract's list, letter for
// letter.
func openRoutes(ctx context.Context, s *deployment) (string, error) {
	rows, err := allRows() //nolint:contextcheck // the handlers of the tables are not called
	if err != nil {
		return "", err
	}
	for _, service := range []string{controller, registry} {
		var found []string
		for _, r := range rows {
			if r = s.onSite(r); r.service != service || r.wants != 0 {
				continue
			}
			a, err := send(ctx, s.plain, r.method+" "+s.addresses[service]+r.path, r.body)
			if err != nil {
				return "", err
			}
			if refusal(a) != "" {
				found = append(found, r.method+":"+r.path)
			}
		}
		slices.Sort(found)
		if want := slices.Sorted(slices.Values(openByContract)); !slices.Equal(found, want) {
			return "", fmt.Errorf("open at the %s are %v, and the contract has %v", service, found, want)
		}
	}
	return fmt.Sprintf("%d at each service: %s", len(openByContract), strings.Join(openByContract, " ")), nil
}

// denied expects the response to an unauthenticated caller.
func denied(a answer, err error) error {
	if err != nil {
		return err
	}
	if fault := refusal(a); fault != "" {
		return fmt.Errorf("%s: %d %.200s", fault, a.code, a.body)
	}
	return nil
}

// whoami asks what every permission opens.
func (s *deployment) whoami(ctx context.Context, value string) (answer, error) {
	return send(ctx, s.plain, "GET "+s.addresses[controller]+"/api/v1/vm", "", "Authorization", value)
}

func opened(a answer, err error) error {
	if err == nil && a.code != http.StatusOK {
		err = fmt.Errorf("%d %.200s", a.code, a.body)
	}
	return err
}

// replayed shows a secret twice, and at both services.
func replayed(ctx context.Context, s *deployment) error {
	first, err := s.hand(ctx, s.plain, s.addresses[controller], "key-every")
	if err != nil {
		return err
	}
	second, err := s.hand(ctx, s.plain, s.addresses[controller], "key-every") // several may be open
	if err != nil || first == second {
		return fmt.Errorf("two hands: %w", errors.Join(err, errors.New("they have the same secret")))
	}
	a, err := shake(ctx, s.plain, s.addresses[registry], "key-every", first) // another service of the same keys
	if err == nil {
		_, err = s.sessionOf(a)
	}
	if err != nil {
		return err
	}
	for _, service := range []string{controller, registry} {
		if err := denied(shake(ctx, s.plain, s.addresses[service], "key-every", first)); err != nil {
			return fmt.Errorf("again at the %s: %w", service, err)
		}
	}
	if a, err = shake(ctx, s.plain, s.addresses[controller], "key-every", second); err == nil {
		_, err = s.sessionOf(a)
	}
	return err
}

// alphabets shows a session in each alphabet, with and without padding, and what is none.
func alphabets(ctx context.Context, s *deployment) error {
	value, err := s.bearer(ctx, controller, "every")
	if err != nil {
		return err
	}
	raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(value, "Bearer "))
	if err != nil {
		return err
	}
	for i, enc := range []*base64.Encoding{
		base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding,
	} {
		for _, text := range []string{string(raw), " " + string(raw) + "\n"} {
			if err := opened(s.whoami(ctx, "Bearer "+enc.EncodeToString([]byte(text)))); err != nil {
				return fmt.Errorf("alphabet %d: %w", i, err)
			}
		}
	}
	for _, junk := range []string{
		"", "=", "e30", "bnVsbA==", "W10=", strings.Repeat("A", 5000), string(raw), "%7B%7D",
	} {
		if err := denied(s.whoami(ctx, "Bearer "+junk)); err != nil {
			return fmt.Errorf("%.20q: %w", junk, err)
		}
	}
	return nil
}

// foreignID shows the secret of one key for another, and for keys that there are not. A hand for one
// of these is answered like any other.
func foreignID(ctx context.Context, s *deployment) error {
	if _, err := s.bearer(ctx, controller, "nothing"); err != nil {
		return err
	}
	secret, err := s.hand(ctx, s.plain, s.addresses[controller], "key-nothing")
	if err != nil {
		return err
	}
	if err := denied(shake(ctx, s.plain, s.addresses[controller], "key-every", secret)); err != nil {
		return err
	}
	for _, id := range []string{"nobody", "root", strings.Repeat("x", 2000)} {
		a, err := send(ctx, s.plain, "POST "+s.addresses[controller]+"/tap/v1/hand", `{"id":"`+id+`"}`)
		if raw, bad := base64.StdEncoding.DecodeString(string(a.body)); err != nil || bad != nil ||
			a.code != http.StatusOK || len(raw) != 256 {
			return fmt.Errorf("a hand for %.20q: %d %w", id, a.code, errors.Join(err, bad))
		}
		if err := denied(shake(ctx, s.plain, s.addresses[controller], id, secret)); err != nil {
			return fmt.Errorf("a shake for %.20q: %w", id, err)
		}
	}
	return nil
}

// deletedKey deletes a key during a live session, and makes one of the same ID again.
func deletedKey(ctx context.Context, s *deployment) error {
	if err := errors.Join(s.addKey(ctx, controller, "passing", "every"), s.ensureGroup(ctx, "every")); err != nil {
		return err
	}
	value, err := s.handshake(ctx, s.plain, s.addresses[controller], "passing")
	if err != nil {
		return err
	}
	if err := opened(s.whoami(ctx, value)); err != nil {
		return err
	}
	secret, err := s.hand(ctx, s.plain, s.addresses[controller], "passing")
	if err != nil {
		return err
	}
	if _, err := s.asRoot(ctx, controller, "DELETE", keyPath(controller),
		map[string]string{"id": "passing"}); err != nil {
		return err
	}
	for range 2 {
		if err := denied(s.whoami(ctx, value)); err != nil {
			return err
		}
		if err := denied(shake(ctx, s.plain, s.addresses[controller], "passing", secret)); err != nil {
			return err
		}
		// it is there the second time
		if _, err := s.asRoot(ctx, controller, "GET", keyPath(controller)+"?id=passing", nil); err != nil {
			if err := s.addKey(ctx, controller, "passing", "every"); err != nil {
				return err
			}
		}
	}
	return nil
}

// livePermissions changes what the holder of a session may do, in each way that there is.
func livePermissions(ctx context.Context, s *deployment) error {
	if err := s.addKey(ctx, controller, "changing", "crew"); err != nil {
		return err
	}
	value, err := s.handshake(ctx, s.plain, s.addresses[controller], "changing")
	if err != nil {
		return err
	}
	for i, c := range []struct {
		method, path string
		in           any
		may          bool
	}{
		{"POST", groupPath + "crew", map[string]any{"permissions": []string{"list_vms"}}, true},
		{"POST", groupPath + "crew", map[string]any{"permissions": []string{"get_groups"}}, false},
		{"POST", groupPath + "others", map[string]any{"permissions": []string{"list_vms"}}, false},
		{"PUT", keyPath(controller), map[string]any{"id": "changing", "groups": []string{"others"}}, true},
		{"DELETE", groupPath + "others", nil, false},
		{"POST", groupPath + "changing", map[string]any{"permissions": []string{"list_vms"}}, true}, // by its name
		{"DELETE", groupPath + "changing", nil, false},
	} {
		if _, err := s.asRoot(ctx, controller, c.method, c.path, c.in); err != nil {
			return err
		}
		a, err := s.whoami(ctx, value)
		if err != nil || (a.code == http.StatusOK) != c.may || !c.may && a.code != http.StatusForbidden {
			return fmt.Errorf("change %d: %d, %w", i+1, a.code, err)
		}
	}
	return nil
}

// hugeHeaders sends headers of a megabyte; the service refuses them and continues.
func hugeHeaders(ctx context.Context, s *deployment) error {
	big := strings.Repeat("A", 1<<20)
	for _, header := range [][]string{{"Authorization", "Bearer " + big}, {"Authorization", "Basic " +
		big}, {"Cookie", "buildyard_session=" + big}, {userHeader, big}} {
		for _, service := range []string{controller, registry} {
			a, err := send(ctx, s.plain, "GET "+s.addresses[service]+"/livez", "", header...)
			if err == nil && a.code < http.StatusBadRequest {
				return fmt.Errorf("%s of the %s: %d", header[0], service, a.code)
			}
			if err := opened(send(ctx, s.plain, "GET "+s.addresses[service]+"/livez", "")); err != nil {
				return fmt.Errorf("after that: %w", err)
			}
		}
	}
	return nil
}

// Sessions of one key that live at the same time, and how many requests are timed then.
const (
	liveSessions    = 10_000
	timed           = 500
	concurrentCalls = 8
)

// manySessions opens sessions of one key, and uses the first, the last and some between.
func manySessions(ctx context.Context, s *deployment) (string, error) {
	if err := s.ensureGroup(ctx, "every"); err != nil {
		return "", err
	}
	if _, err := s.bearer(ctx, controller, "every"); err != nil {
		return "", err
	}
	began, values, errs := time.Now(), make([]string, liveSessions), make([]error, concurrentCalls)
	var wg sync.WaitGroup
	for w := range concurrentCalls {
		wg.Go(func() {
			for i := w; i < liveSessions && errs[w] == nil; i += concurrentCalls {
				values[i], errs[w] = s.handshake(ctx, s.plain, s.addresses[controller], "key-every")
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return "", err
	}
	took := time.Since(began)
	times := make([]time.Duration, timed)
	for i := range times {
		one := time.Now()
		if err := opened(s.whoami(ctx, values[i*(liveSessions/timed)])); err != nil {
			return "", err
		}
		times[i] = time.Since(one)
	}
	slices.Sort(times)
	if err := opened(s.whoami(ctx, values[liveSessions-1])); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d handshakes in %.1f s; then a GET with a session takes %s (p50) over TLS", liveSessions,
		took.Seconds(), times[timed/2].Round(time.Microsecond)), nil
}

// Failures in a row, and good handshakes in a row behind them.
const (
	failures = 50
	goodOnes = 200
)

// onlyFailures fails often under the id of a key and shakes hands with it many times then.
func onlyFailures(ctx context.Context, s *deployment) error {
	if _, err := s.bearer(ctx, registry, "every"); err != nil {
		return err
	}
	refused := map[int]int{}
	for range failures {
		a, err := shake(ctx, s.plain, s.addresses[registry], "key-every", strings.Repeat("x", 27))
		if err != nil {
			return err
		}
		refused[a.code]++
	}
	if refused[401] < 20 || refused[429] < 1 || refused[401]+refused[429] != failures {
		return fmt.Errorf("%d failures in a row are answered %v", failures, refused)
	}
	for i := range goodOnes {
		if _, err := s.handshake(ctx, s.plain, s.addresses[registry], "key-every"); err != nil {
			return fmt.Errorf("good handshake %d: %w", i+1, err)
		}
	}
	return nil
}

// resourceCases are about rights on single nodes and templates.
var resourceCases = []probe{
	{"group is required, and group_id is off", quiet(actingGroup)},
}

// actingGroup starts instances where rights on single nodes count.
func actingGroup(ctx context.Context, s *deployment) error {
	value, err := s.bearer(ctx, controller, "every")
	if err != nil {
		return err
	}
	for body, want := range map[string]int{
		`{"vmid":"11111111-2222-4333-8444-555555555555"}`:                                   http.StatusBadRequest,
		`{"vmid":"11111111-2222-4333-8444-555555555555","group":"every","group_id":"x"}`:    http.StatusBadRequest,
		`{"vmid":"11111111-2222-4333-8444-555555555555","group":"somebody-else's"}`:         http.StatusForbidden,
		`{"vmid":"11111111-2222-4333-8444-555555555555","group":"every","count":"no-text"}`: http.StatusBadRequest,
	} {
		a, err := send(ctx, s.plain, "POST "+s.addresses[controller]+"/api/v1/vm", body, "Authorization", value)
		if err != nil || a.code != want {
			return fmt.Errorf("%s: %d %.200s, %w", body, a.code, a.body, err)
		}
	}
	return nil
}

// metrics reads what services in one process count, where no secret may be either.
func (s *deployment) metrics(ctx context.Context) error {
	if s.split {
		return nil
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.counts+"/metrics", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if kinds := s.secrets.In(text); len(kinds) > 0 || len(text) == 0 {
		return fmt.Errorf("%d bytes of metrics hold secrets: %v", len(text), kinds)
	}
	return err
}

// minimum is the set of permissions that the specification recommends to have at least.
var minimum = strings.Fields(
	"get_groups get_registry_disk_info list_images list_nodes list_vms save_image start_vm terminate_vm update_vm " +
		"view_logs")

// minimumSet does what a plugin of a CI system does, with that set at the controller and nothing at
// the registry.
func minimumSet(ctx context.Context, s *deployment) error {
	if _, err := s.asRoot(ctx, controller, "POST", groupPath+"plugin",
		map[string]any{"permissions": minimum}); err != nil {
		return err
	}
	if err := s.addKey(ctx, controller, "a plugin", "plugin"); err != nil {
		return err
	}
	value, err := s.handshake(ctx, s.plain, s.addresses[controller], "a plugin")
	if err != nil {
		return err
	}
	const id = "11111111-2222-4333-8444-555555555555"
	for _, c := range []struct{ what, body, says string }{
		{"GET /api/v1/group", "", ""},
		{"GET /api/v1/node", "", ""},
		{"GET /api/v1/vm", "", ""},
		{"GET /api/v1/image", "", ""},
		{"GET /api/v1/registry/disk", "", ""},
		{"POST /api/v1/vm", `{"vmid":"` + id + `"}`, "VM not in the registry"},
		{"POST /api/v1/vm", `{"vmid":"a-name"}`, "VM not in the registry"},
		{"PUT /api/v1/vm?id=" + id, `{"name":"x"}`, "Not found"},
		{"POST /api/v1/image", `{"id":"` + id + `","tag":"t","new_template_name":"x"}`, "Not found"},
		{"DELETE /api/v1/vm", `{"id":"` + id + `"}`, "Not found"},
	} {
		method, path, _ := strings.Cut(c.what, " ")
		a, err := send(ctx, s.plain, method+" "+s.addresses[controller]+path, c.body, "Authorization", value)
		if err != nil || a.code != http.StatusOK || a.envelope().Message != c.says {
			return fmt.Errorf("%s: %d %.200s, %w", c.what, a.code, a.body, err)
		}
	}
	return nil
}
