package nodeinput

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

// free has the fields that are not bounded here: secrets that are only compared, and output that is cut where it is
// stored. The limit of the body bounds them.
var free = []string{"Token", "Credential", "Stdout", "Stderr"}

// hostile has texts that a hostile node may send.
var hostile = []string{
	strings.Repeat("x", 1<<16), strings.Repeat("\u65e5", 2000), "a\x1b[2Jb", "\u202egnp", "line\u2028end", "nul\x00",
}

// numbers are absurd numbers.
var numbers = []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1, 1e300, math.MaxInt64}

// full returns a value with something valid in every field, two elements in every list.
func full(t reflect.Type, field string) reflect.Value {
	v := reflect.New(t).Elem()
	switch {
	case t == reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(time.Unix(1_700_000_000, 0)))
	case t.Kind() == reflect.Pointer:
		v.Set(full(t.Elem(), field).Addr())
	case t.Kind() == reflect.Struct:
		for i := range t.NumField() {
			v.Field(i).Set(full(t.Field(i).Type, t.Field(i).Name))
		}
	case t.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(t, 2, 2))
		for i := range 2 {
			v.Index(i).Set(full(t.Elem(), field))
		}
	case t.Kind() == reflect.String:
		v.SetString("x")
		if field == "Arch" {
			v.SetString("amd64")
		}
	case v.CanInt():
		v.SetInt(1)
	}
	return v
}

// leaves calls do with every text, number, time and list within v.
func leaves(v reflect.Value, path string, do func(path string, v reflect.Value)) {
	switch {
	case v.Type() == reflect.TypeFor[time.Time](), v.Kind() == reflect.String, v.CanInt(), v.CanFloat():
		do(path, v)
	case v.Kind() == reflect.Pointer && !v.IsNil():
		leaves(v.Elem(), path, do)
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			leaves(v.Field(i), path+"."+v.Type().Field(i).Name, do)
		}
	case v.Kind() == reflect.Slice:
		do(path, v)
		for i := range v.Len() {
			leaves(v.Index(i), fmt.Sprintf("%s[%d]", path, i), do)
		}
	}
}

// bounded returns the parts of an accepted value that are not within any limit.
func bounded(v reflect.Value) (wrong []string) {
	leaves(v, "", func(path string, v reflect.Value) {
		if slices.ContainsFunc(free, func(f string) bool { return strings.HasSuffix(path, "."+f) }) {
			return
		}
		switch {
		case v.Kind() == reflect.String &&
			(len(v.String()) > MaxMessage || strings.ContainsFunc(v.String(), unprintable)),
			v.CanInt() && (v.Int() < -maxCode || v.Int() > maxNo),
			v.CanFloat() && !(v.Float() >= 0 && v.Float() <= 1),
			v.Kind() == reflect.Slice && v.Len() > MaxHeld:
			wrong = append(wrong, path)
		}
	})
	return wrong
}

// spoil sets one leaf to a hostile value; it reports whether there is such a value for its kind.
func spoil(v reflect.Value, i int) bool {
	switch {
	case v.Type() == reflect.TypeFor[time.Time]() && i == 0:
		v.Set(reflect.ValueOf(time.Date(20000, 1, 1, 0, 0, 0, 0, time.UTC)))
	case v.Kind() == reflect.String && i < len(hostile):
		v.SetString(hostile[i])
	case v.CanFloat() && i < len(numbers):
		v.SetFloat(numbers[i])
	case v.CanInt() && i < 2:
		v.SetInt([]int64{math.MinInt64, math.MaxInt64}[i])
	case v.Kind() == reflect.Slice && i == 0:
		v.Set(reflect.MakeSlice(v.Type(), MaxHeld+1, MaxHeld+1))
	default:
		return false
	}
	return true
}

// check makes every field of a body invalid, one after the other. Each must be refused with a
// message or be bounded.
func check[T any](t *testing.T, bound func(*T) error) {
	t.Helper()
	typ := reflect.TypeFor[T]()
	valid := full(typ, "")
	if err := bound(valid.Addr().Interface().(*T)); err != nil {
		t.Fatalf("a valid body is refused: %v", err)
	}
	var paths []string
	leaves(full(typ, ""), "", func(path string, _ reflect.Value) { paths = append(paths, path) })
	for _, spoiled := range paths {
		for i, more := 0, true; more; i++ {
			body := full(typ, "")
			leaves(body, "", func(path string, v reflect.Value) {
				if path == spoiled {
					more = spoil(v, i)
				}
			})
			err := bound(body.Addr().Interface().(*T))
			if err == nil {
				if wrong := bounded(body); len(wrong) > 0 {
					t.Errorf("value %d of %s is let through: %v", i, spoiled, wrong)
				}
			} else if code := farm.CodeOf(err); code != farm.CodeInvalid && code != farm.CodeRefused ||
				len(err.Error()) > 300 {
				t.Errorf("%s: %s %.300s", spoiled, code, err)
			}
		}
	}
	if len(paths) < 3 {
		t.Errorf("%d fields", len(paths))
	}
}

// TestEveryFieldIsBounded covers fields that are added later, too.
func TestEveryFieldIsBounded(t *testing.T) {
	t.Run("join", func(t *testing.T) { check(t, Join) })
	t.Run("pass", func(t *testing.T) { check(t, Pass) })
	t.Run("poll", func(t *testing.T) { check(t, Poll) })
	t.Run("report", func(t *testing.T) { check(t, Report) })
}

// TestWhatIdentifiesIsRefused: the error names the field, since a cut id would identify something
// else.
// TestProtocolIsChecked: every request of a node with another protocol is refused with both versions and a remedy.
func TestProtocolIsChecked(t *testing.T) {
	const newer = api.LinkProtocol + 1
	for name, err := range map[string]error{
		"join":   Join(&api.JoinRequest{Protocol: newer, Name: "a", Host: "h"}),
		"poll":   Poll(&api.PollRequest{Protocol: newer, BootID: "b"}),
		"report": Report(&api.Report{Protocol: newer}),
		"token":  Pass(&api.RegistryTokenRequest{Protocol: newer}),
	} {
		const want = "Node protocol version 2 is not supported: this controller supports version 1; " +
			"update the controller"
		if farm.CodeOf(err) != farm.CodeRefused || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
	if err := Join(&api.JoinRequest{Protocol: -1, Name: "a", Host: "h"}); err == nil ||
		!strings.Contains(err.Error(), "update buildnode on the node") {
		t.Errorf("an older protocol: %v", err)
	}
}

func TestWhatIdentifiesIsRefused(t *testing.T) {
	poll := func(change func(*api.PollRequest)) error {
		r := &api.PollRequest{BootID: "b"}
		change(r)
		return Poll(r)
	}
	long := strings.Repeat("x", MaxName+1)
	for field, err := range map[string]error{
		"boot_id":              poll(func(r *api.PollRequest) { r.BootID = "a\nb" }),
		"host":                 poll(func(r *api.PollRequest) { r.Host = long }),
		"held.vm_id":           poll(func(r *api.PollRequest) { r.Held = []api.InventoryItem{{VMID: long}} }),
		"acks.claim":           poll(func(r *api.PollRequest) { r.Acks = []api.Ack{{Claim: long}} }),
		"fills":                poll(func(r *api.PollRequest) { r.Fills = map[string]api.DiskFill{long: {}} }),
		"info_hash":            poll(func(r *api.PollRequest) { r.InfoHash = long }),
		"update.id":            poll(func(r *api.PollRequest) { r.Update = &api.UpdateStatus{ID: long} }),
		"name":                 Join(&api.JoinRequest{Name: "a\u202eb", Host: "h"}),
		"statuses.instance_id": Report(&api.Report{Statuses: []api.InstanceStatus{{InstanceID: long}}}),
		"errands.id":           Report(&api.Report{CacheJobs: []api.CacheJobStatus{{ID: long}}}),
		"purpose.save":         Pass(&api.RegistryTokenRequest{Purpose: &api.TokenPurpose{Save: long}}),
	} {
		if farm.CodeOf(err) != farm.CodeInvalid || !strings.HasPrefix(err.Error(), field+": must ") {
			t.Errorf("%s: %v", field, err)
		}
	}
	if err := poll(func(r *api.PollRequest) {
		r.Fills = map[string]api.DiskFill{}
		for i := range maxFills + 1 {
			r.Fills[fmt.Sprint(i)] = api.DiskFill{}
		}
	}); farm.CodeOf(err) != farm.CodeInvalid {
		t.Errorf("too many fills: %v", err)
	}
}

// TestTextsForPeopleStay: texts within the limits are not changed, and of longer ones the useful
// part is kept.
func TestTextsForPeopleStay(t *testing.T) {
	s := api.InstanceStatus{Message: strings.Repeat("x", MaxMessage) + "\n\tdisk is full: 日本"}
	if err := status("", &s); err != nil || !strings.HasSuffix(s.Message, "x\n\tdisk is full: 日本") ||
		len(s.Message) != MaxMessage {
		t.Errorf("%d bytes, %v", len(s.Message), err)
	}
	in := api.NodeInfo{OS: "Großes OS 1.2"}
	for range 3000 {
		in.Templates = append(in.Templates, api.NodeTemplate{ID: strings.Repeat("x", 300)})
	}
	if info(&in); in.OS != "Großes OS 1.2" || len(in.Templates) != 1000 || len(in.Templates[0].ID) != MaxName {
		t.Errorf("%q, %d versions", in.OS, len(in.Templates))
	}
	for i := range in.Templates {
		in.Templates[i].Tag = strings.Repeat("y", MaxField)
	}
	if info(&in); len(in.Templates) != maxLists/(MaxName+MaxField) {
		t.Errorf("%d versions with long tags", len(in.Templates))
	}
}
