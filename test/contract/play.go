package main

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// caseRunner plays cases against one cloud.
type caseRunner struct {
	spec   *spec
	ledger *coverage
	stage  *stage
}

// pause is the time between two looks of a step that is repeated.
const pause = 50 * time.Millisecond

// play runs a case and describes what went wrong; nothing when it passed.
func (p *caseRunner) play(ctx context.Context, c sequence) []string {
	return p.playWith(ctx, c, vars{})
}

// playWith runs a case with variables of the caller, in which it stores what the case keeps.
func (p *caseRunner) playWith(ctx context.Context, c sequence, v vars) []string {
	v["unique"] = unique(c.file + " " + c.Case)
	v["long257"] = strings.Repeat("x", 257)
	maps.Copy(v, p.stage.vars(c.On))
	maps.Copy(v, p.stage.access.vars())
	for i, st := range c.Steps {
		if faults := p.step(ctx, c, i, st, v); len(faults) > 0 {
			return append([]string{fmt.Sprintf("step %d, %s:", i+1, st.Send)}, faults...)
		}
	}
	p.ledger.claim(c.Rows)
	return nil
}

// unique is a short text that no other case has.
func unique(name string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name))
	return fmt.Sprintf("%08x", h.Sum32())
}

// step makes one request, again and again while it may take time.
func (p *caseRunner) step(ctx context.Context, c sequence, i int, st step, v vars) []string {
	if st.Wait > 0 {
		time.Sleep(st.Wait)
	}
	plain, err := st.build(p.spec, v)
	if err != nil {
		return []string{err.Error()}
	}
	to := p.stage.door(c.On, st.At, plain.path)
	plain.known = p.stage.access != nil && p.stage.access.kind != byRoot
	deadline := time.Now().Add(st.Within)
	for try := 0; ; try++ {
		sent, form := plain.formed(turn(c, st, i, try))
		a, err := sent.send(ctx, to, st.Stream)
		if err != nil {
			return []string{err.Error()}
		}
		p.stage.access.learn(a)
		faults := p.ledger.take(exchange{
			who: c.Case, route: sent.route, answer: a, rule: st.Rule, refuses: st.Refuses, unread: st.Refuses == "" &&
				(st.Code == 404 || st.Code == 405),
			asked: askedOf(sent),
		})
		if len(faults) > 0 {
			return append(faults, "sent as "+form)
		}
		if a.code == 405 {
			p.ledger.only(p.spec, sent.path)
		}
		fault := st.compare(a, v)
		if fault == "" {
			return st.keep(a, v)
		}
		if state := stateOf(a); len(st.Only) > 0 && !slices.Contains(st.Only, state) {
			return []string{fmt.Sprintf("instance_state %q was seen; %s", state, fault)}
		}
		if time.Now().After(deadline) {
			return []string{fault, "sent as " + form}
		}
		time.Sleep(pause)
	}
}

// turn chooses the form of a request.
func turn(c sequence, st step, i, try int) string {
	if st.As != "" {
		return st.As
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(c.file + c.Case))
	return turns[(int(h.Sum32()%uint32(len(turns)))+i+try)%len(turns)]
}

func askedOf(r *request) asked {
	if r.route == nil {
		return asked{}
	}
	return r.route.read(r.path, r.query, r.header, r.body())
}

func stateOf(a *answer) string {
	value, _ := at(a.value, "body/instance_state")
	state, _ := value.(string)
	return state
}

// compare compares an answer with what a step expects.
func (st step) compare(a *answer, v vars) string {
	code := st.Code
	if code == 0 {
		code = 200
		if st.Names != "" {
			code = 400
		}
	}
	status, message := a.message()
	said := fmt.Sprintf("the answer is %d %s %q", a.code, status, message)
	switch refused := st.Fail != "" || st.Names != "" || code >= 400; {
	case a.code != code:
		return fmt.Sprintf("%s, and %d was expected: %s", said, code, short(string(a.body), 300))
	case refused && status != "FAIL":
		return said + ", and a refusal was expected"
	case !refused && status == "FAIL":
		return said
	case st.Names != "" && !names(message, st.Names):
		return said + ", which does not name " + st.Names
	}
	if want := v.fill(st.Fail); want != "" && !meant(want, message) {
		return said + fmt.Sprintf(", and %q was expected", want)
	}
	for name, pattern := range st.Header {
		if got := a.header.Get(name); !regexp.MustCompile(v.fill(pattern)).MatchString(got) {
			return fmt.Sprintf("header %s is %q", name, got)
		}
	}
	if st.Text != "" && !regexp.MustCompile(v.fill(st.Text)).Match(a.body) {
		return fmt.Sprintf("the answer is %q", short(string(a.body), 400))
	}
	if st.OK == nil {
		return ""
	}
	body, _ := at(a.value, "body")
	want, _ := v.fillAny(st.OK).(map[string]any)
	return differs(body, want)
}

// meant reports whether a message is the wanted one.
func meant(want, message string) bool {
	if pattern, ok := strings.CutPrefix(want, "~"); ok {
		return regexp.MustCompile(pattern).MatchString(message)
	}
	return want == message
}

// keep puts what later steps need into the variables.
func (st step) keep(a *answer, v vars) []string {
	body, _ := at(a.value, "body")
	for name, path := range st.Keep {
		value, ok := at(body, v.fill(path))
		if header, named := strings.CutPrefix(path, "header "); named {
			value, ok = a.header.Get(header), a.header.Get(header) != ""
		}
		if !ok {
			return []string{fmt.Sprintf("%s is not there to be kept", path)}
		}
		v[name] = value
	}
	return nil
}
