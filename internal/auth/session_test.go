package auth

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/api"
)

// TestBearerForms: clients write the session again in whatever form they like.
func TestBearerForms(t *testing.T) {
	w := newWorld(t)
	w.add(t, "cï>?~") // whose JSON has both characters in which the alphabets differ
	s := w.session(t, "cï>?~")
	quoted := func(text string) string {
		raw, err := json.Marshal(text)
		must(t, err)
		return string(raw)
	}
	plain := `{"userName":"cï>?~","sessionId":` + quoted(s.SessionID) + `,"token":` + quoted(s.Token) + `}`
	for name, text := range map[string]string{
		"as it came": plain,
		"escaped": `{"userName":` + quoted(s.UserName) + `,"sessionId":` + quoted(s.SessionID) + `,"token":` +
			quoted(s.Token) + `}`,
		"other order": `{"token":` + quoted(s.Token) + `,"userName":` + quoted(s.UserName) + `,"sessionId":` +
			quoted(s.SessionID) + `}`,
		"white space": "\n{ \"token\" :\t" + quoted(s.Token) + ",\r\n  \"sessionId\" : " + quoted(s.SessionID) +
			", \"userName\": \"cï>?~\" }  ",
		"a newline":      plain + "\n",
		"unknown fields": `{"x":[{"y":null}],` + plain[1:],
	} {
		for _, coding := range []*base64.Encoding{
			base64.StdEncoding, base64.URLEncoding, base64.RawStdEncoding, base64.RawURLEncoding,
		} {
			for pad := range 3 { // every length of the last group
				value := coding.EncodeToString([]byte(text + strings.Repeat(" ", pad)))
				who, err := w.sessions.Verify(value)
				if err != nil || who.Name != "cï>?~" {
					t.Errorf("%s: %+v, %v", name, who, err)
				}
				if _, err := w.sessions.Verify(value + "\n"); err != nil {
					t.Errorf("%s and a newline: %v", name, err)
				}
			}
		}
	}
}

func TestBearersAreRefusedAlike(t *testing.T) {
	w := newWorld(t)
	w.add(t, "ci")
	w.add(t, "other")
	foreign := newWorld(t)
	foreign.add(t, "ci")
	s, other := w.session(t, "ci"), w.session(t, "other")
	good := bearer(t, s)
	for name, c := range map[string]struct {
		value string
		why   error
	}{
		"nothing":   {"", errBearerForm},
		"no base64": {"***", errBearerForm},
		"no JSON":   {base64.StdEncoding.EncodeToString([]byte("hello")), errBearerForm},
		"null":      {base64.StdEncoding.EncodeToString([]byte("null")), errBearerForm},
		"a list":    {base64.StdEncoding.EncodeToString([]byte("[]")), errBearerForm},
		"no token":  {bearer(t, api.Session{UserName: "ci", SessionID: s.SessionID}), errBearerForm},
		"two objects": {
			base64.StdEncoding.EncodeToString([]byte(`{"userName":"ci","token":"x"}{}`)),
			errBearerForm,
		},
		"half": {good[:len(good)/2], errBearerForm},
		"more behind it": {
			base64.StdEncoding.EncodeToString([]byte(mustJSON(t, s)+strings.Repeat(" ", 3-len(mustJSON(t, s))%3))) +
				"*", errBearerForm,
		},
		"large":      {strings.Repeat("A", maxBearer+1), errBearerForm},
		"a megabyte": {strings.Repeat("A", 1<<20), errBearerForm},
		"deep":       {base64.StdEncoding.EncodeToString([]byte(strings.Repeat(`{"a":`, 500))), errBearerForm},
		"foreign":    {bearer(t, foreign.session(t, "ci")), errSessionForeign},
		"another's name": {bearer(t,
			api.Session{UserName: "other", SessionID: s.SessionID, Token: s.Token}), errSessionForeign},
		"another session": {bearer(t,
			api.Session{UserName: "ci", SessionID: other.SessionID, Token: s.Token}), errSessionForeign},
		"another token": {bearer(t,
			api.Session{UserName: "ci", SessionID: s.SessionID, Token: other.Token}), errSessionForeign},
		"no session id": {bearer(t, api.Session{UserName: "ci", Token: s.Token}), errSessionForeign},
		"half a token": {bearer(t,
			api.Session{UserName: "ci", SessionID: s.SessionID, Token: s.Token[:40]}), errSessionForeign},
		"an unknown key": {bearer(t,
			api.Session{UserName: "who", SessionID: s.SessionID, Token: s.Token}), errSessionKey},
		"the secret of a tap": {bearer(t,
			api.Session{UserName: "ci", SessionID: s.SessionID, Token: w.hand(t, "ci")}), errSessionForeign},
	} {
		who, err := w.sessions.Verify(c.value)
		if !errors.Is(err, c.why) || who.Method != "" || err.Error() == "" {
			t.Errorf("%s: %+v, %v; want %v", name, who, err, c.why)
		}
	}
	padded := strings.Replace(mustJSON(t, s), "{", `{"x":"`+strings.Repeat("x", maxBearer)+`",`, 1)
	if _, err := w.sessions.Verify(base64.StdEncoding.EncodeToString([]byte(padded))); !errors.Is(err, errBearerForm) {
		t.Errorf("a good one that is too large: %v", err)
	}
	longest := mustJSON(t, s)
	longest = base64.StdEncoding.EncodeToString([]byte(longest + strings.Repeat(" ", maxBearer/4*3-len(longest))))
	if _, err := w.sessions.Verify(longest); err != nil || len(longest) != maxBearer {
		t.Errorf("the longest one, of %d bytes: %v", len(longest), err)
	}
	if _, err := w.sessions.Verify(longest + "\n"); !errors.Is(err, errBearerForm) {
		t.Errorf("a byte more: %v", err)
	}
	for _, err := range []error{errBearerForm, errSessionForeign, errSessionKey, errSessionExpired} {
		if !strings.HasPrefix(err.Error(), "Authentication Required: ") {
			t.Errorf("%v", err)
		}
	}
}

func mustJSON(t *testing.T, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	must(t, err)
	return string(raw)
}

func TestSessionsLiveForTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.add(t, "ci")
		day := NewSessions(w.keys, w.signer, 48*time.Hour)
		value := bearer(t, w.session(t, "ci"))
		time.Sleep(DefaultSessionTTL)
		if _, err := w.sessions.Verify(value); err != nil {
			t.Errorf("to the end: %v", err)
		}
		time.Sleep(time.Millisecond)
		_, err := w.sessions.Verify(value)
		refusedAs(t, err, errSessionExpired)
		if _, err := day.Verify(value); err != nil {
			t.Errorf("where sessions live longer: %v", err)
		}
		if day.ttl != MaxSessionTTL {
			t.Errorf("ttl %v", day.ttl)
		}
	})
}

// TestManySessions: 10,000 live sessions take no memory, and each is valid.
func TestManySessions(t *testing.T) {
	w := newWorld(t)
	var keys []string
	for i := range 10 {
		keys = append(keys, fmt.Sprint("key", i))
		w.add(t, keys[i], keys[i])
	}
	values := make([]string, 10_000)
	for i := range values {
		key, _ := w.keys.GetUnexpired(keys[i%10])
		values[i] = bearer(t, w.sessions.Issue(key))
	}
	for i, v := range values {
		if who, err := w.sessions.Verify(v); err != nil || who.Name != keys[i%10] {
			t.Fatal(who, err)
		}
	}
}

func FuzzBearer(f *testing.F) {
	w := newWorld(f)
	w.add(f, "ci")
	s := w.session(f, "ci")
	f.Add(bearer(f, s))
	f.Add(bearer(f, api.Session{UserName: "ci", SessionID: "x", Token: "y"}))
	f.Add("e30")
	f.Add(`eyJ1c2VyTmFtZSI6ImNpIn0=`)
	f.Fuzz(func(t *testing.T, value string) {
		who, err := w.sessions.Verify(value)
		if err != nil {
			return
		}
		got, err := parseBearer(value)
		if err != nil || got.UserName != "ci" || got.SessionID != s.SessionID || who.Name != "ci" {
			t.Fatalf("%q is %+v", value, who)
		}
	})
}
