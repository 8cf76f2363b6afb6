package auth

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
)

func TestRegistryTokens(t *testing.T) {
	w := newWorld(t)
	w.add(t, "ci", "a", "b")
	passes := NewRegistryTokens(w.signer, w.keys)
	for name, c := range map[string]struct {
		key    string
		groups []string
	}{
		"joined with the token":  {"", nil},
		"joined with a key":      {"ci", []string{"a", "b"}},
		"of a key that is gone":  {"gone", nil},
		"with a long id of keys": {strings.Repeat("k", MaxKeyID), nil},
	} {
		value, life := passes.Issue("node-1", c.key, NodeScope{})
		who, err := passes.Verify(value)
		must(t, err)
		if who.Name != "node-1" || who.KeyID != c.key || who.Method != ByNode || who.Root ||
			!slices.Equal(who.Groups, c.groups) || life != RegistryTokenTTL {
			t.Errorf("%s: %+v for %s", name, who, life)
		}
		if strings.ContainsAny(value, " ./+=\n") {
			t.Errorf("%s: %s", name, value)
		}
	}
	alone, _ := passes.Issue("node-1", "ci", NodeScope{})
	who, err := NewRegistryTokens(w.signer, nil).Verify(alone)
	if err != nil || who.KeyID != "ci" || who.Groups != nil {
		t.Errorf("where no keys are: %+v, %v", who, err)
	}
}

// TestRegistryTokensFollowTheirKeys: the groups are those of now, and a key that is deleted leaves none.
func TestRegistryTokensFollowTheirKeys(t *testing.T) {
	w := newWorld(t)
	w.add(t, "ci", "old")
	passes := NewRegistryTokens(w.signer, w.keys)
	value, _ := passes.Issue("node-1", "ci", NodeScope{})
	groups := []string{"new"}
	must(t, w.keys.Update(t.Context(), "ci", APIKeyChange{Groups: &groups}))
	if who, err := passes.Verify(value); err != nil || !slices.Equal(who.Groups, groups) {
		t.Errorf("%+v, %v", who, err)
	}
	must(t, w.keys.Delete(t.Context(), "ci"))
	who, err := passes.Verify(value)
	if err != nil || who.Groups != nil || who.KeyID != "ci" {
		t.Errorf("%+v, %v", who, err)
	}
	rules := NewRules(Policy{Service: farm.ServiceRegistry, Tier: farm.TierEnterprisePlus, Authorization: true}, Grants{
		Groups: map[string][]farm.Permission{"new": {"pull_vm"}},
	})
	who.Scope.PullTemplates = []string{"t1"}
	if rules.Allows(who, "pull_vm") {
		t.Error("a node of a deleted key may pull")
	}
}

// TestRegistryTokensOfAKeyThatExpires: the registry token stays valid, and the groups of the expired key do
// not.
func TestRegistryTokensOfAKeyThatExpires(t *testing.T) {
	keys, public := NewAPIKeys(NewKeyTable(nil, nil)), publicText(t, &pair2048().PublicKey)
	synctest.Test(t, func(t *testing.T) {
		_, err := keys.Create(t.Context(), NewAPIKey{ID: "ci", TTL: 60, Groups: []string{"a"}, PublicKey: public})
		must(t, err)
		passes := NewRegistryTokens(NewSigner(NewKeyRing(time.Now())), keys)
		value, _ := passes.Issue("node-1", "ci", NodeScope{})
		who, err := passes.Verify(value)
		if err != nil || len(who.Groups) != 1 {
			t.Errorf("%+v, %v", who, err)
		}
		time.Sleep(2 * time.Minute)
		if who, err = passes.Verify(value); err != nil || who.Groups != nil {
			t.Errorf("%+v, %v", who, err)
		}
	})
}

func TestRegistryTokensAreRefusedAlike(t *testing.T) {
	w, foreign := newWorld(t), newWorld(t)
	w.add(t, "ci")
	passes := NewRegistryTokens(w.signer, w.keys)
	good, _ := passes.Issue("node-1", "ci", NodeScope{})
	of, _ := NewRegistryTokens(foreign.signer, foreign.keys).Issue("node-1", "ci", NodeScope{})
	sealed := func(p Purpose, text string) string { return registryTokenPrefix + w.signer.Sign(p, []byte(text)) }
	raw, err := base64.RawURLEncoding.DecodeString(good[len(registryTokenPrefix):])
	must(t, err)
	cases := map[string]struct {
		value string
		why   *farm.Error
	}{
		"nothing":             {"", errRegistryTokenForm},
		"only the prefix":     {registryTokenPrefix, errRegistryTokenForm},
		"no prefix":           {good[len(registryTokenPrefix):], errRegistryTokenForm},
		"another prefix":      {"Node~" + good[len(registryTokenPrefix):], errRegistryTokenForm},
		"no base64":           {registryTokenPrefix + "***", errRegistryTokenForm},
		"a newline":           {good[:20] + "\n.", errRegistryTokenForm},
		"large":               {registryTokenPrefix + strings.Repeat("A", maxSignedText+1), errRegistryTokenForm},
		"a megabyte":          {registryTokenPrefix + strings.Repeat("A", 1<<20), errRegistryTokenForm},
		"of another cloud":    {of, errRegistryTokenForeign},
		"a log-in":            {sealed(loginPurpose, `{"n":"node-1"}`), errRegistryTokenForeign},
		"a session's purpose": {sealed(sessionPurpose, `{"n":"node-1"}`), errRegistryTokenForeign},
		"the token of a key":  {registryTokenPrefix + w.session(t, "ci").Token, errRegistryTokenForeign},
		"nobody's":            {sealed(registryTokenPurpose, `{"n":""}`), errRegistryTokenForm},
		"no JSON":             {sealed(registryTokenPurpose, `node-1`), errRegistryTokenForm},
		"a wrong type":        {sealed(registryTokenPurpose, `{"n":"node-1","k":5}`), errRegistryTokenForm},
		"an impossible name":  {sealed(registryTokenPurpose, `{"n":"a\nb"}`), errRegistryTokenForm},
	}
	for name, c := range cases {
		who, err := passes.Verify(c.value)
		refusedAs(t, err, c.why)
		if who.Method != "" || who.Name != "" {
			t.Errorf("%s: %+v", name, who)
		}
	}
	for n := range raw { // each byte counts, and so does each length
		for name, other := range map[string][]byte{"cut": raw[:n], "changed": flipped(raw, n)} {
			if who, err := passes.Verify(registryTokenPrefix +
				base64.RawURLEncoding.EncodeToString(other)); err == nil {
				t.Errorf("%s at %d: %+v", name, n, who)
			}
		}
	}
}

func flipped(raw []byte, at int) []byte {
	out := slices.Clone(raw)
	out[at] ^= 1
	return out
}

func TestRegistryTokensExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		passes := NewRegistryTokens(NewSigner(NewKeyRing(time.Now())), nil)
		value, life := passes.Issue("node-1", "", NodeScope{})
		time.Sleep(life)
		_, err := passes.Verify(value)
		must(t, err)
		time.Sleep(time.Millisecond)
		_, err = passes.Verify(value)
		refusedAs(t, err, errRegistryTokenExpired)
	})
}

// TestRegistryTokensAsCredentials: no other kind of Bearer value is accepted as a registry token, nor the
// reverse.
func TestRegistryTokensAsCredentials(t *testing.T) {
	w := newWorld(t)
	w.add(t, "ci")
	all := complete(t, w)
	all.RegistryTokens = NewRegistryTokens(w.signer, w.keys)
	pass, _ := all.RegistryTokens.Issue("node-1", "", NodeScope{})
	identify := func(a *Authenticator, value string) (Identity, error) {
		return a.identifyHeader(t.Context(), "Bearer "+value)
	}
	for name, c := range map[string]struct {
		value string
		as    Method
	}{
		"pass":                      {pass, ByNode},
		"session":                   {bearer(t, w.session(t, "ci")), ByKey},
		"JWT":                       {"a.b.c", ByOIDC},
		"JWT with the pass's begin": {registryTokenPrefix + "a.b.c", ""},
		"pass with a dot":           {pass + ".", ""},
	} {
		if who, err := identify(all, c.value); who.Method != c.as || (err == nil) != (c.as != "") {
			t.Errorf("%s: %+v, %v", name, who, err)
		}
	}
	all.RegistryTokens = nil
	if who, err := identify(all, pass); err == nil {
		t.Errorf("where no passes count: %+v", who)
	}
	only := &Authenticator{RegistryTokens: NewRegistryTokens(w.signer, nil)}
	if who, err := identify(only, pass); err != nil || who.Method != ByNode ||
		!slices.Equal(only.Schemes(), []string{"Bearer"}) {
		t.Errorf("%+v, %v, %v", who, err, only.Schemes())
	}
	if _, err := identify(only, "x"); err == nil {
		t.Error("something else is taken")
	}
}

// TestDerivedRegistryTokens: holders of the same root token make the same registry tokens, and others do not.
func TestDerivedRegistryTokens(t *testing.T) {
	controller, registry := NewDerivedRegistryTokens(NewSecret("0123456789"), nil),
		NewDerivedRegistryTokens(NewSecret("0123456789"), nil)
	value, _ := controller.Issue("node-1", "ci", NodeScope{})
	who, err := registry.Verify(value)
	if err != nil || who.Name != "node-1" || who.KeyID != "ci" {
		t.Errorf("%+v, %v", who, err)
	}
	_, err = NewDerivedRegistryTokens(NewSecret("0123456788"), nil).Verify(value)
	refusedAs(t, err, errRegistryTokenForeign)
	key := controller.signer().ring.Load().keys[0].secret
	if *key == [32]byte{} || string(key[:10]) == "0123456789" {
		t.Error("nothing was derived")
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		if text := fmt.Sprintf(verb, *controller.signer().ring.Load()); strings.Contains(text, "0123") ||
			strings.Contains(text, string(key[:4])) {
			t.Errorf("%s prints %s", verb, text)
		}
	}
}
