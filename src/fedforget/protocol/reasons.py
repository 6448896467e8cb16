"""Reasons why a user has no update in a round.

Histories and receipts hold these texts. The server accepts from a device only those in ``FROM_DEVICES``, so that no
other text of a device is ever stored.
"""

from __future__ import annotations

#: Local training.
DIVERGED = "training diverged on the device"
DATA_CHANGED = "interactions on the device do not match its log"
#: The update log.
NO_ENTRY = "the log has no entry for this round"
LOG_FULL = "the log was full in this round"
ENTRY_DAMAGED = "the log entry for this round is damaged"
#: The user's file on the device.
NOT_ENROLLED = "the user is not enrolled on the device"
FILE_DAMAGED = "the user's file on the device is damaged"
MISSING_COMPONENT = "the device does not have a component that the federation uses"
FILE_UNUSABLE = "the device cannot read or write the user's file"
#: Orders that a device refuses.
OUTDATED = "the device has seen a newer order"
UNKNOWN_TRAJECTORY = "the device is on a trajectory that the server does not know"
OTHER_MODEL = "the model sent is not the one in the user's terms"
TOO_MANY_EPOCHS = "more epochs requested than the user's terms allow"
NO_PAST = "the device has no past round to replay"
NO_WHOLE_UPDATES = "the device does not log whole updates"
DIFFERENT_TERMS = "the user's terms differ from those of others on the device"
ONE_ROUND_ONLY = "stored updates are sent for one round at a time"
OTHER_ITEMS = "the server's catalogue has other items than the device's"
FEWER_ITEMS = "the server's catalogue has fewer items than before"
NOT_SECURE = "the user's terms allow updates only as a part of a secure sum"
TOO_FEW = "too few devices for a secure sum"
OTHER_KEY = "the sum does not name the device's key"
SECOND_SUM = "the device has another sum for the same order"
WAITS = "the user asked to forget items, which is not done yet"

FROM_DEVICES = frozenset(
    {
        DIVERGED,
        DATA_CHANGED,
        NO_ENTRY,
        MISSING_COMPONENT,
        LOG_FULL,
        ENTRY_DAMAGED,
        NOT_ENROLLED,
        FILE_DAMAGED,
        FILE_UNUSABLE,
        OUTDATED,
        UNKNOWN_TRAJECTORY,
        OTHER_MODEL,
        TOO_MANY_EPOCHS,
        NO_PAST,
        NO_WHOLE_UPDATES,
        DIFFERENT_TERMS,
        ONE_ROUND_ONLY,
        OTHER_ITEMS,
        FEWER_ITEMS,
        NOT_SECURE,
        TOO_FEW,
        OTHER_KEY,
        SECOND_SUM,
        WAITS,
    }
)

#: Reaching a device.
NO_NODE = "no device is registered for the user"
NO_KEY = "the device has not sent its key for secure sums"
NOT_CONNECTED = "the device was not connected"
NO_RESPONSE = "the device did not respond"
LATE = "the device did not respond in time"
UNSENT = "the message to the device could not be sent"
FAILED = "the device could not carry out the task"
LOST = "the device disconnected during the task"
FORGED = "the response does not belong to the message sent to the device"
#: Responses that the server rejects.
NOT_ASKED = "the device responded for a user or round that it was not asked for"
NOT_MENTIONED = "the device did not mention the user in its response"
UNKNOWN_REASON = "the device gave an unknown reason"
IMPOSSIBLE_METRICS = "the device reported impossible metrics"
WRONG_MASKS = "the device's part of a secure sum is not valid"
NOT_REVEALED = "the masks of a secure sum could not be removed"
#: Updates that the server rejects.
WRONG_SHAPE = "the update does not have the shape of the model"
UNKNOWN_ITEM = "the update names an item that does not exist"
NOT_FINITE = "the update holds NaN or infinity"
TOO_LARGE = "the update is larger than the bound in the user's terms"
REPEATED_ITEM = "the update names an item twice"
WRONG_COUNT = "the reported interaction count is out of range"
REPEATED_USER = "the user has two updates"

#: Reasons that may be different when the device is asked again.
TRANSIENT = frozenset({NOT_CONNECTED, NO_RESPONSE, LATE, UNSENT, LOST, NO_KEY, OTHER_KEY, TOO_FEW, NOT_REVEALED})
