package oidc

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/buildyard/buildyard/internal/auth"
)

// Limits of a provider's claims about a user.
const (
	maxName   = 256 // bytes
	maxGroups = 1000
)

// user is the user that the provider's claims name.
type user struct {
	name   string
	groups []string
}

// claims are a provider's statements about a user: name of the claim -> its JSON.
type claims map[string]json.RawMessage

func claimsOf(t *oidc.IDToken) (claims, error) {
	var c claims
	if err := t.Claims(&c); err != nil || c == nil {
		return nil, errors.New("the claims of the token are not a JSON object")
	}
	return c, nil
}

// stringClaim returns a claim that is a text.
func (c claims) stringClaim(name string) (s string, ok bool) {
	return s, json.Unmarshal(c[name], &s) == nil && s != ""
}

// userOf reads user and groups of claims.
func (p *Provider) userOf(c claims) (user, error) {
	name, ok := c.stringClaim(p.opts.UsernameClaim)
	if !ok || !isPlainName(name) {
		return user{}, fmt.Errorf("the user name claim %q is missing, too long or has unprintable characters",
			p.opts.UsernameClaim)
	}
	if strings.EqualFold(name, auth.RootName) {
		return user{}, errors.New("the user name of the identity provider is reserved for the root user")
	}
	// A user who may write any address into a profile must not become its owner.
	if raw := string(c["email_verified"]); p.opts.UsernameClaim == "email" && raw != "" && raw != "true" &&
		raw != `"true"` {
		return user{},
			errors.New("the email address that is used as user name is not verified by the identity provider")
	}
	groups, err := c.groupsClaim(p.opts.GroupsClaim)
	return user{name: name, groups: groups}, err
}

// groupsClaim reads a claim that is a list, or a text of names that are separated by spaces.
func (c claims) groupsClaim(name string) ([]string, error) {
	raw, ok := c[name]
	if !ok || string(raw) == "null" {
		return nil, nil
	}
	var groups []string
	var one string
	if json.Unmarshal(raw, &one) == nil {
		groups = strings.Fields(one)
	} else if json.Unmarshal(raw, &groups) != nil {
		return nil, fmt.Errorf("the group claim %q is neither a string nor a list of strings", name)
	}
	groups = slices.DeleteFunc(groups, func(g string) bool { return g == "" })
	if len(groups) > maxGroups {
		return nil, fmt.Errorf("the group claim %q has more than %d groups", name, maxGroups)
	}
	if slices.ContainsFunc(groups, func(g string) bool { return !isPlainName(g) }) {
		return nil, fmt.Errorf("a group in the claim %q is too long or has unprintable characters", name)
	}
	slices.Sort(groups)
	return slices.Compact(groups), nil
}

// isPlainName reports whether a text can be a name: not empty, not long, and nothing in it that a
// reader of logs does not see.
func isPlainName(s string) bool {
	if s == "" || len(s) > maxName || !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return true
}
