package portal

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
)

func (p *portal) accessPages() []page {
	return []page{
		{path: "/keys", name: "keys", title: "API keys", load: listKeys},
		{path: "/permission-groups", name: "permissions", title: "Permission groups", load: listPermissionGroups},
		{path: "/admin/ui", name: "permissions", title: "Permission groups", load: listPermissionGroups},
	}
}

func (p *portal) accessActions() []action {
	return []action{
		{path: "/keys/create", name: "keyform", title: "Create API key", ask: askCreateKey, do: doCreateKey},
		{path: "/keys/change", name: "keyform", title: "Change API key", ask: askChangeKey, do: doChangeKey},
		{path: "/keys/delete", name: "keydelete", title: "Delete API key", ask: askDeleteKey, do: doDeleteKey},
		{
			path: "/permission-groups/edit", name: "permissionform", title: "Permission group", ask: askPermissions,
			do: doPermissions,
		},
		{
			path: "/permission-groups/delete", name: "permissiondelete", title: "Delete permission group",
			ask: askDeletePermissions, do: doDeletePermissions,
		},
	}
}

// keyList is the page of the keys.
type keyList struct {
	Off  bool   // callers do not have to log in, or there are no keys
	Not  string // why they are not shown
	Rows []keyRow
	Curl string
}

// keyRow is a key in the list.
type keyRow struct {
	ID, Groups       string
	Created, Expires time.Time
	Left             string // how long it is good; "": no more
}

const pathKeys = "/api/v1/apikey"

func listKeys(v *visit) (any, error) {
	list := keyList{Off: !v.guarded, Curl: curl(v, "GET", pathKeys, "")}
	if list.Off {
		return list, nil
	}
	keys, err := v.Keys(v)
	if client.CodeOf(err) == client.ErrUnauthenticated {
		return nil, err
	}
	list.Not = refusal(err)
	slices.SortFunc(keys, func(a, b api.Key) int { return cmp.Compare(a.ID, b.ID) })
	for _, k := range keys {
		row := keyRow{ID: k.ID, Groups: strings.Join(k.Groups, ", "), Created: k.Created, Expires: k.Expiration}
		if left := k.Expiration.Sub(v.now); left > 0 {
			row.Left = span(left)
		}
		list.Rows = append(list.Rows, row)
	}
	return list, nil
}

// keyForm is the form of a key.
type keyForm struct {
	ID     string // "": a new one
	Groups string
	Known  []string // names of permission groups
	Curl   string
}

// knownGroups are the names of permission groups, as far as the visitor may see them.
func knownGroups(v *visit) (names []string) {
	groups, err := v.PermissionGroups(v)
	if err != nil {
		return nil
	}
	for _, g := range groups {
		names = append(names, g.Name)
	}
	return names
}

func askCreateKey(v *visit) (any, error) {
	if !v.guarded {
		return nil, &client.Error{Code: client.ErrRefused, Message: "Authentication is disabled, so there are no keys."}
	}
	if not := v.can().Not("make key", ""); not != "" {
		return nil, &client.Error{Code: client.ErrForbidden, Message: not + "."}
	}
	return keyForm{Known: knownGroups(v), Curl: curl(v, "POST", pathKeys,
		`{"id":"ci","ttl":31536000,"groups":["ci"]}`)}, nil
}

// secondsOf reads for how many days a key is good.
func secondsOf(v *visit) (int64, error) {
	days, err := strconv.Atoi(v.q.Get("days"))
	if err != nil || days < 1 || days > 36500 {
		return 0, invalid("invalid validity: want a number of days, at least 1")
	}
	return int64(days) * 86400, nil
}

func doCreateKey(v *visit) (actionResult, error) {
	id := strings.TrimSpace(v.q.Get("id"))
	ttl, err := secondsOf(v)
	if err != nil {
		return actionResult{}, err
	}
	private, err := v.CreateKey(v,
		api.NewKey{ID: id, TTL: ttl, Groups: named(v.q.Get("groups")), PublicKey: strings.TrimSpace(v.q.Get("public"))})
	if err != nil {
		return actionResult{}, err
	}
	out := actionResult{
		Back: "/keys", Items: []itemResult{{Name: id, Said: "Key created. The owner of the private key can use it."}},
	}
	if text := private.Reveal(); text != "" {
		out.Items[0].Said = "Key created"
		out.Once = &secret{"Private key", text}
	}
	return out, nil
}

func askChangeKey(v *visit) (any, error) {
	k, err := v.Key(v, v.q.Get("id"))
	if err != nil {
		return nil, err
	}
	return keyForm{ID: k.ID, Groups: strings.Join(k.Groups, ", "), Known: knownGroups(v), Curl: curl(v, "PUT", pathKeys,
		jsonOf(client.KeyChange{ID: k.ID, Groups: []string{"ci"}}))}, nil
}

func doChangeKey(v *visit) (actionResult, error) {
	k, err := v.Key(v, v.q.Get("id"))
	if err != nil {
		return actionResult{}, err
	}
	change := client.KeyChange{ID: k.ID, Groups: rebased(v.q, "groups", k.Groups, named(v.q.Get("groups")))}
	if v.q.Get("days") != "" {
		if change.TTL, err = secondsOf(v); err != nil {
			return actionResult{}, err
		}
	}
	return actionResult{To: "/keys"}, v.UpdateKey(v, change)
}

func askDeleteKey(v *visit) (any, error) {
	k, err := v.Key(v, v.q.Get("id"))
	if err != nil {
		return nil, err
	}
	return keyForm{ID: k.ID, Curl: curl(v, "DELETE", pathKeys, jsonOf(map[string]string{"id": k.ID}))}, nil
}

func doDeleteKey(v *visit) (actionResult, error) {
	return actionResult{To: "/keys"}, v.DeleteKey(v, v.q.Get("id"))
}
