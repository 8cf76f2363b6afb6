package api

import "time"

// Group is a node group.
type Group struct {
	ID              string  `json:"id"`
	Name            string  `json:"name"`
	Description     string  `json:"description"`       // chosen by an operator
	FallbackGroupID *string `json:"fallback_group_id"` // null: none
}

// Drain describes since when and why a node is drained.
type Drain struct {
	Since     time.Time `json:"since"` // when the drain began
	Reason    string    `json:"reason,omitempty"`
	Deadline  time.Time `json:"deadline,omitzero"` // when running instances are terminated; absent: never
	Remaining int       `json:"remaining"`         // instances that still use capacity there
}
