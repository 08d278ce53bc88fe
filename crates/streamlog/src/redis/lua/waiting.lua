-- What waits for the session's standalone streams (GET-05): a stream of Redis, its bytes and its
-- loss in the session's log, and the newest of each subject in an index.
-- log, waiting and index are the keys; k is 0 message, 1 log, 2 invalidation, 3 question.
local function fields(entry)
  local e = {}
  for j = 1, #entry[2], 2 do e[entry[2][j]] = entry[2][j + 1] end
  return e
end
local function over(log, waiting, index, name, e)
  redis.call('XDEL', waiting, name)
  redis.call('HINCRBY', log, 'wb', -(#e.d + 96))
  if e.k == '2' and redis.call('HGET', index, e.s) == name then redis.call('HDEL', index, e.s) end
end
-- Drops one that was not delivered; a question's asker is told.
local function drop(log, waiting, index, entry, me, tag, lost)
  local e = fields(entry)
  over(log, waiting, index, entry[1], e)
  if e.k == '3' then
    if e.r == me then
      lost[#lost + 1] = e.s
    else
      redis.call('PUBLISH', 'vestibule:r:' .. e.r, 'Q ' .. tag .. ' - 0 ' .. e.s)
    end
  elseif e.k ~= '1' then
    redis.call('HSET', log, 'wl', '1')
  end
end
-- What has waited too long goes. All of it went unseen when the key itself has expired.
local function expire(log, waiting, index, me, tag, before, lost)
  while true do
    local oldest = redis.call('XRANGE', waiting, '-', '+', 'COUNT', 1)[1]
    if not oldest then break end
    if tonumber(fields(oldest).t) > before then return end
    drop(log, waiting, index, oldest, me, tag, lost)
  end
  if tonumber(redis.call('HGET', log, 'wb') or '0') > 0 then redis.call('HSET', log, 'wb', 0, 'wl', '1') end
end
