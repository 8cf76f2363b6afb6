package auth

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"
)

func TestRootTokenLength(t *testing.T) {
	for token, words := range map[string]string{
		"":                           "at least 10",
		"123456789":                  "has 9 characters",
		"üüüüüüüüü":                  "has 9 characters",
		strings.Repeat("x", 1025):    "at most 1024",
		"1234567890":                 "",
		"üüüüüüüüüü":                 "",
		" : \" ' \\ $ \n % + / = ü ": "",
	} {
		_, err := NewRootToken(token)
		if (err == nil) != (words == "") || err != nil && !strings.Contains(err.Error(), words) {
			t.Errorf("%q: %v", token, err)
		}
		if err != nil && token != "" && strings.Contains(err.Error(), token) {
			t.Errorf("the error holds the token: %v", err)
		}
	}
}

func TestBasic(t *testing.T) {
	const token = "p:äss w/ö+rd\"'\\$%=-_"
	r, err := NewRootToken(token)
	must(t, err)
	for _, coding := range []*base64.Encoding{
		base64.StdEncoding, base64.URLEncoding, base64.RawStdEncoding, base64.RawURLEncoding,
	} {
		for _, user := range []string{"root", ""} {
			who, err := r.Verify(coding.EncodeToString([]byte(user + ":" + token)))
			if err != nil || !who.Root || who.Name != "root" || who.Method != ByRoot {
				t.Errorf("%q: %+v, %v", user, who, err)
			}
		}
	}
	b64 := base64.StdEncoding.EncodeToString
	for _, c := range []struct {
		basic string
		why   error
	}{
		{b64([]byte("Root:" + token)), errBasicUser},
		{b64([]byte("admin:" + token)), errBasicUser},
		{b64([]byte("root:" + token + "x")), errBasicToken},
		{b64([]byte("root:" + token[:len(token)-1])), errBasicToken},
		{b64([]byte("root:")), errBasicToken},
		{b64([]byte(token)), errBasicUser}, // the colon is the token's
		{b64([]byte("root")), errBasicForm},
		{"", errBasicForm},
		{"***", errBasicForm},
		{b64([]byte("root:" + strings.Repeat("x", maxBasic))), errBasicForm},
		{b64([]byte("root:" + strings.Repeat("x", maxBasic/4*3-5))), errBasicToken}, // the longest that is read
		{b64([]byte("root:"+strings.Repeat("x", maxBasic/4*3-5))) + "\n", errBasicForm},
	} {
		if who, err := r.Verify(c.basic); !errors.Is(err, c.why) || who.Root {
			t.Errorf("%.40s: %+v, %v; want %v", c.basic, who, err, c.why)
		}
	}
}

func FuzzBasic(f *testing.F) {
	r, err := NewRootToken("0123456789:ü")
	must(f, err)
	f.Add(base64.StdEncoding.EncodeToString([]byte("root:0123456789:ü")))
	f.Add("cm9vdDo=")
	f.Add("Og")
	f.Fuzz(func(t *testing.T, basic string) {
		who, err := r.Verify(basic)
		if (err == nil) != who.Root {
			t.Fatalf("%+v, %v", who, err)
		}
		if err != nil {
			return
		}
		user, token, err := parseBasic(basic)
		if err != nil || token != "0123456789:ü" || user != "" && user != "root" {
			t.Fatalf("%q is root", basic)
		}
	})
}
