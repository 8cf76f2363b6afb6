// Package search finds records by a text that a person types: it ranks how well the fields of a record match, and
// keeps the best of many.
//
// It reads no tables, knows no kinds of records and decides nothing about who may see them; it has no index. The
// language of filters is in internal/filter.
//
// Invariant: the time of a match is bounded by the lengths of the query and the fields, and the memory of a search by
// its limit.
package search
