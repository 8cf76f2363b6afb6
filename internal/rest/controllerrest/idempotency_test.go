package controllerrest_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"
)

func TestIdempotencyKey(t *testing.T) {
	c := newCloud(t)
	start := func(key, fields string) answer {
		t.Helper()
		return c.call("POST", "/api/v1/vm", `{"vmid":"`+templateID+`"`+fields+`}`, "Idempotency-Key", key)
	}
	first := start("job 4711/1", `,"name":"n","count":2`)
	want(t, "the first", first.Status, "OK")
	for _, fields := range []string{`,"name":"n","count":2`, ` , "count": 2, "name": "n"`} {
		want(t, "again", start("job 4711/1", fields), first)
	}
	want(t, "instances", len(c.list("")), 2)
	other := start("job 4711/1", `,"name":"n","count":3`)
	if other.code != 200 || other.Status != "FAIL" ||
		other.Message != "This Idempotency-Key was used for a different request: use a new key" {
		t.Errorf("another body: %d %s", other.code, other.Message)
	}
	if a := c.call("POST", "/api/v1/image", `{"id":"x","tag":"t","new_template_name":"n"}`, "Idempotency-Key",
		"job 4711/1"); a.Message != "Not found" {
		t.Errorf("another route: %d %s", a.code, a.Message)
	}
	for range 2 { // a failure is not remembered
		if a := c.call("POST", "/api/v1/vm", `{"vmid":"nothing"}`, "Idempotency-Key",
			"bad"); a.Message != "VM not in the registry" {
			t.Errorf("a failure: %d %s", a.code, a.Message)
		}
	}
	want(t, "after a failure", start("bad", "").Status, "OK")
	for _, key := range []string{strings.Repeat("k", 256), "ü", "a\tb"} {
		if a := start(key, ""); a.code != http.StatusBadRequest ||
			!strings.HasPrefix(a.Message, "Idempotency-Key: must have") {
			t.Errorf("%q: %d %s", key, a.code, a.Message)
		}
	}
	want(t, "instances", len(c.list("")), 3)
}

func TestIdempotencyKeyAtTheSameTime(t *testing.T) {
	c := newCloud(t)
	var wg sync.WaitGroup
	answers := make([]answer, 10)
	for i := range answers {
		wg.Go(func() {
			answers[i] = c.call("POST", "/api/v1/vm", `{"vmid":"`+templateID+`"}`, "Idempotency-Key", "k")
		})
	}
	wg.Wait()
	for _, a := range answers {
		want(t, "answer", a, answers[0])
	}
	want(t, "instances", len(c.list("")), 1)
}

func TestIdempotencyKeyOfAGroup(t *testing.T) {
	c := newCloud(t)
	ask := func(body string) answer {
		return c.call("POST", "/api/v1/group", body, "Idempotency-Key", "g")
	}
	first := ask(`{"name":"mac"}`)
	want(t, "the first", first.Status, "OK")
	want(t, "again", ask(`{"name":"mac"}`), first)
	if a := ask(`{"name":"linux"}`); a.code != 200 || a.Status != "FAIL" {
		t.Errorf("another one: %d %s", a.code, a.Message)
	}
	if a := c.call("GET", "/api/v1/group", ""); strings.Count(string(a.Body), `"id"`) != 1 {
		t.Errorf("groups: %s", a.Body)
	}
}
