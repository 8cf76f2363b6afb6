// Package filter is the one language in which lists are narrowed, by the API, the commands
// and the portal:
//
//	state:error node:mac-* template:x tag:y age>10m name:"a b" -state:started
//
// Terms are joined by AND. A term is a field with a value, or with several, of which one has
// to fit (state:error,stopped); -TERM is what the term is not. In values * stands for any
// text, unless they are quoted; letters of ASCII fit in either case. Ages, sizes and numbers
// are compared (age>10m size>=4GB vms<2). A word alone is looked for in the fields that
// things are called by.
//
// It knows no resource: a Table says which fields one has. It is no search engine: nothing is
// ranked, and nothing but the records at hand is looked at.
//
// Invariant: parsing and matching take time that is bounded by the length of the text and of
// the values, whatever both say.
package filter
