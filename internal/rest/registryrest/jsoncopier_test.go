package registryrest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"

	"github.com/buildyard/buildyard/internal/farm"
)

// copied copies one value that nothing follows.
func copied(from io.Reader) (string, error) {
	var out bytes.Buffer
	c := &jsonCopier{in: bufio.NewReaderSize(from, 16), out: bufio.NewWriter(&out)}
	if err := c.copyValue(maxJSONDepth); err != nil {
		return "", err
	}
	if b, err := c.nextToken(); err == nil {
		return "", c.syntaxError("found %q behind the value", b)
	}
	err := c.out.Flush()
	return out.String(), err
}

var jsonSeeds = []string{
	`{}`, `[]`, `[[],{}]`, `{"a":1,"b":[true,false,null,-0.5e+10,"x\u00e9\n"]}`, ` { "a" : [ 1 , 2 ] } `, `"ü€𝄞"`, `0`,
	`-1`, `1E5`, `1e-5`, `0.0`,
	``, ` `, `{`, `[1,]`, `{"a":1,}`, `{,}`, `[,]`, `{"a"}`, `{a:1}`, `01`, `-`, `1.`, `.5`, `1e`, `+1`, `tru`, `truE`,
	`"\x"`, `"\u12g4"`, "\"\x01\"", `"a`, `1 2`, `[1 2]`,
	`{"a":1]`, `[1}`, `nul`, "\"\xff\"", `{"a":{"b":{"c":[{"d":[]}]}}}`, `"\ud800"`, "\ufeff1", `[1,2`, "\"\u2028<&>\"",
	`NaN`, `"\/"`, `'a'`,
}

// sameAsLibrary describes how a copy differs from the output of the standard library; "" if it does not.
func sameAsLibrary(raw []byte) string {
	got, err := copied(iotest.OneByteReader(bytes.NewReader(raw)))
	if errors.Is(err, errTooDeep) {
		return ""
	}
	if valid := json.Valid(raw) && utf8.Valid(raw); valid != (err == nil) {
		return "valid is not so: " + got
	}
	var want bytes.Buffer
	if err == nil && json.Compact(&want, raw) == nil && want.String() != got {
		return got
	}
	return ""
}

// TestJSONCopy: text is valid here exactly if it is for the standard library, and the copy is equal.
func TestJSONCopy(t *testing.T) {
	for _, s := range jsonSeeds {
		if fault := sameAsLibrary([]byte(s)); fault != "" {
			t.Errorf("%q: %s", s, fault)
		}
	}
	deep := strings.Repeat("[", maxJSONDepth) + strings.Repeat("]", maxJSONDepth)
	if got, err := copied(strings.NewReader(deep)); err != nil || got != deep {
		t.Error(got, err)
	}
	if _, err := copied(strings.NewReader("[" + deep + "]")); !errors.Is(err, errTooDeep) {
		t.Error(err)
	}
	broken := errors.New("broken")
	if _, err := copied(io.MultiReader(strings.NewReader(`{"a":"b`), iotest.ErrReader(broken))); !errors.Is(err,
		broken) {
		t.Error(err)
	}
}

func FuzzJSONCopy(f *testing.F) {
	for _, s := range jsonSeeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if fault := sameAsLibrary(raw); fault != "" {
			t.Errorf("%q: %s", raw, fault)
		}
	})
}

// FuzzScanBody: a body is accepted or refused by name, and an accepted one is one object.
func FuzzScanBody(f *testing.F) {
	f.Add(
		[]byte(
			`{"scanner":"s","version":"1","database":"2026-01-02T03:04:05Z","scanned":"2026-01-02T03:04:05Z","counts":{"high":1},"report":{"a":[1]}}`))
	f.Add([]byte(`{"report":{},"report":{}}`))
	f.Add([]byte(`{"\u0072eport":{"a":"\u0000"},"counts":null}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var report bytes.Buffer
		_, err := readScan(bytes.NewReader(raw), &report)
		if err != nil {
			if farm.CodeOf(err) != farm.CodeInvalid {
				t.Errorf("%q: %v", raw, err)
			}
			return
		}
		var object map[string]json.RawMessage
		if err := json.Unmarshal(report.Bytes(), &object); err != nil || object == nil || !json.Valid(raw) {
			t.Errorf("%q: report %q, %v", raw, report.Bytes(), err)
		}
	})
}

// TestScanBodyFails: disk errors are not reported as faults of the body, and a truncated body is not valid
// JSON.
func TestScanBodyFails(t *testing.T) {
	full := farm.Unavailable(errors.New("no space"), "Full")
	for err, want := range map[error]farm.Code{full: farm.CodeUnavailable, errors.New("disk"): farm.CodeInternal} {
		_, got := readScan(strings.NewReader(`{"report":{"a":1}}`), failing{err})
		if farm.CodeOf(got) != want {
			t.Errorf("%v: %v", err, got)
		}
	}
	_, err := readScan(io.MultiReader(strings.NewReader(`{"report":{`), iotest.ErrReader(iotest.ErrTimeout)),
		io.Discard)
	if farm.CodeOf(err) != farm.CodeInvalid || err.Error() != "The request body could not be read" {
		t.Error(err)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }
